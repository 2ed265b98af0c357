//! The shim as a program of its own: the same function as `weft shim` in a much smaller file.
#![forbid(unsafe_code)]

fn main() {
    weft_actors::shim::main()
}
