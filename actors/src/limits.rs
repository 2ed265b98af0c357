//! Every size, count and time of this crate, each with its reason. Nothing else holds a bare number.

