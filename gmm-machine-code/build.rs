//! Copies the machine code that `cargo xtask machine-code` made to where the library embeds it; in a
//! clone that has none, its archives are empty.
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let cards = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("cards");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for card in ["sm_80", "sm_90", "sm_100", "sm_120"] {
        let file = cards.join(card);
        fs::write(out.join(card), if file.exists() { fs::read(file)? } else { Vec::new() })?;
    }
    Ok(())
}
