//! Links the unwinder into the programs instead of loading `libgcc_s.so`, whose constructor asks the processor for its
//! features; in a virtual machine that traps, and each start of a command or a shim paid 0.05 to 0.08 ms for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") != "linux" || target("ENV") != "gnu" || env::var("HOST") != env::var("TARGET") {
        return;
    }
    if !Command::new("cc")
        .arg("-print-file-name=libgcc_eh.a")
        .output()
        .is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_absolute())
    {
        return;
    }
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        return;
    };
    // The standard library asks for `-lgcc_s`; the linker finds this script first.
    if fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").is_ok() {
        println!("cargo::rustc-link-search=native={}", out.display());
    }
}
