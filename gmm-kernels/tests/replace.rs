//! Another archive in the place of the committed ones. This test needs a process without other
//! tests, because the replacement holds for the whole process.
use gmm_kernels::ptx::{checksum, entry, names, replace};
use gmm_ptx::{Entry, pack};

#[test]
fn a_replacement_holds_for_all_kernels() {
    let kernel = Entry { name: "other".into(), text: "// PTX of another compiler\n".into() };
    let archive = pack(std::slice::from_ref(&kernel)).unwrap().leak();

    // An archive whose last bytes, a text, are damaged is refused, and changes nothing.
    let damaged = archive.to_vec().leak();
    damaged[archive.len() - 8] ^= 0x55;
    let error = replace(damaged).unwrap_err().to_string();
    assert!(error.contains("`other`"), "{error}");

    replace(archive).unwrap();
    assert_eq!(entry("other"), Some(kernel.text.as_str()));
    assert_eq!(names(), ["other"]);
    assert!(entry("pair").is_none() && checksum("pair").is_none() && checksum("other").is_some());
    assert!(replace(archive).is_err());
}
