//! A shim and nothing else: what `weft-shim` is, for tests and for measuring.

fn main() {
    weft_actors::shim::main()
}
