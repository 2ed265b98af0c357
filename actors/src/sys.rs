//! What this crate asks of the kernel, and its only unsafe code.
