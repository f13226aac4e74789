//! Signals that end the program and disks that are too small: results so far are saved, and no unfinished file remains.
#![cfg(unix)]
use crate::common::*;
use std::fs;
use std::io::BufRead;
use std::path::Path;

/// The signals of Ctrl-C, of a batch system and of a closed terminal.
const SIGNALS: [&str; 3] = ["INT", "TERM", "HUP"];

#[test]
fn every_signal_keeps_the_model_so_far() {
    let folder = folder();
    for signal in SIGNALS {
        let name = format!("{signal}.json");
        let args = format!(
            "fit data/speech.npy --device cpu -o {name} -k 8 --covariance-type diag --tol 0 --max-iter 100000000"
        );
        let note = folder.ended_by(signal, args);
        assert!(note.starts_with("note: interrupted after ") && note.contains(&name), "{signal}: {note}");
        assert_eq!(folder.model(&name).n_components(), 8);
    }
    assert_eq!(folder.names(), ["HUP.json", "INT.json", "TERM.json"]);
}

/// A program started by `nohup` continues when its terminal is closed.
#[test]
fn an_ignored_sighup_stays_ignored() {
    let folder = folder();
    let script = "trap '' HUP; echo ignored; exec \"$0\" \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_gmm"), "sample"]);
    shell.args("data/iris3.json -n 3e5 -o x.csv".words());
    let mut child = shell.current_dir(&folder).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ignored\n");
    // Signals keep coming until the program ends.
    while child.try_wait().unwrap().is_none() {
        let _ = std::process::Command::new("sh").args(["-c", &format!("kill -HUP {}", child.id())]).output();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(folder.names(), ["x.csv"]);
}

/// Whether a process has written a megabyte to a file in `folder`, named or unnamed.
#[cfg(target_os = "linux")]
fn writes(id: u32, folder: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{id}/fd")) else { return false };
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(folder));
    let mut open = open.flatten().map(|entry| entry.path()).filter(|link| inside(link));
    open.any(|link| fs::metadata(link).is_ok_and(|file| file.len() > 1 << 20))
}

/// Whether the file system can hold an unnamed file. Only then does SIGKILL leave no file.
#[cfg(target_os = "linux")]
fn has_unnamed_files(folder: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    fs::File::options().write(true).custom_flags(libc::O_TMPFILE).open(folder).is_ok()
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_leaves_no_unfinished_file() {
    let folder = folder();
    let path = folder.path("").canonicalize().unwrap();
    fs::write(path.join("old.csv"), "old").unwrap();
    let before = files(&path);
    // The signal comes long before the gigabyte is written.
    for out in ["new.npy", "old.csv"] {
        let kill_too = has_unnamed_files(&path).then_some("KILL");
        for signal in SIGNALS.into_iter().chain(kill_too) {
            let mut child = start(&path, format!("sample data/iris3.json -n 4e7 -o {out}"));
            wait_for(&mut child, |id| writes(id, &path));
            kill(signal, &child);
            let output = child.wait_with_output().unwrap();
            let code = if signal == "KILL" { None } else { Some(130) };
            assert_eq!((output.status.code(), output.stdout.len()), (code, 0), "{signal}");
            assert!(files(&path) == before, "{signal}, {out}: {:?}", names(&path));
        }
    }
}

/// A run of a sampler has several results, which are all written before the first gets its name.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_run_leaves_no_unfinished_result() {
    let folder = folder();
    let path = folder.path("").canonicalize().unwrap();
    if !has_unnamed_files(&path) {
        return;
    }
    // A result, not the journal, whose files are named from the beginning and removed by the next run.
    let named = |name: &str| name.starts_with("run.partial");
    let results = || names(&path).into_iter().filter(|name| !named(name)).collect::<Vec<_>>();
    // On a busy machine a run may name its results before the test sees it write them.
    for _ in 0..5 {
        let args = "mcmc data/iris.csv -k 2 --sampler metropolis --warmup 100 --draws 200000 --thin 1 --chains 2";
        let mut child = start(&path, format!("{args} --device cpu -o run"));
        wait_for(&mut child, |id| {
            let journal = names(&path).iter().any(|name| named(name));
            !journal && writes(id, &path) || !results().is_empty()
        });
        let late = !results().is_empty();
        kill("KILL", &child);
        child.wait_with_output().unwrap();
        if !late {
            assert_eq!(results(), [""; 0]);
            return;
        }
        names(&path).iter().for_each(|name| fs::remove_file(path.join(name)).unwrap());
    }
    panic!("no run was seen to write its results");
}

/// Every result that a disk cannot take is an error, and so is the output of --help; a file that existed stays.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let folder = folder();
    for name in ["full.npy", "full.csv", "full.json", "full.npz", "full.svg"] {
        std::os::unix::fs::symlink("/dev/full", folder.path(name)).unwrap();
    }
    for args in [
        "fit data/iris.csv -k 2 -o full.json",
        "fit data/iris.csv -k 2 -o full.npz",
        "fit data/iris.csv -k 2 --checkpoint full.json",
        "fit data/iris.csv -k 2 --plot full.svg",
        "score data/iris3.json data/iris.csv --per-sample full.npy",
        "predict data/iris3.json data/iris.csv -o full.npy",
        "predict data/iris3.json data/iris.csv --proba -o full.csv",
        "sample data/iris3.json -n 10 -o full.npy",
        "sample data/iris3.json -n 10 -o /dev/null --labels full.csv",
        "select data/iris.csv -k 1:2 -o full.npz",
        "select data/iris.csv -k 1:2 --plot full.svg",
        "convert data/iris3.json full.json",
    ] {
        assert_has(&folder.fails(1, args), &["full.", "cannot write it: No space left on device"]);
    }
    let of_help = "error: cannot write to standard output: No space left";
    for (args, message) in
        [("--help", of_help), ("fit --help", of_help), ("--version", of_help), ("devices", "error: No space left")]
    {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_gmm"));
        let output = program.args(args.words()).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr.contains(message), "{args}: {stderr}");
        folder.run(args);
    }
    // SIGXFSZ silently ends a program that does not ignore it.
    folder.write("old.json", "old");
    folder.write("old.csv", "old");
    for (blocks, args) in [
        (1, "fit data/speech.npy -k 8 --covariance-type diag -o old.json"),
        (1, "sample data/iris3.json -n 100000 -o old.csv"),
        (8, "sample data/iris3.json -n 100000 -o x.npy"),
        (8, "sample data/iris3.json -n 100000 -o x.parquet"),
        (8, "mcmc data/iris.csv -k 1 --warmup 50 --draws 500 --chains 2 -o run"),
    ] {
        folder.too_large(blocks, args);
    }
}

/// In a folder where everybody may write, a link of another user could lead to any file.
#[test]
fn links_of_other_users_are_not_followed() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let folder = folder();
    let (open, target) = (folder.path("open"), folder.path("precious.csv"));
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    folder.write("precious.csv", "precious");
    let sample = |out: &str| format!("sample data/iris3.json -n 3 -o {out}");
    // The user's own link is followed.
    symlink(&target, open.join("own.csv")).unwrap();
    folder.run(sample("open/own.csv"));
    assert!(fs::symlink_metadata(open.join("own.csv")).unwrap().is_symlink());
    assert_ne!(folder.text("precious.csv"), "precious");
    folder.write("precious.csv", "precious");
    // Only root can make a link owned by another user.
    let (link, way) = (open.join("other.csv"), open.join("way"));
    symlink(&target, &link).unwrap();
    symlink(&folder, &way).unwrap();
    if lchown(&link, Some(12_345), None).is_err() || lchown(&way, Some(12_345), None).is_err() {
        return;
    }
    // Also through the user's own link, and through a folder.
    symlink(&link, folder.path("chain.csv")).unwrap();
    for out in ["open/other.csv", "chain.csv", "open/way/precious.csv"] {
        folder.refused(sample(out), &["a link of another user"]);
    }
}

#[test]
fn an_output_larger_than_the_disk_is_refused_at_the_start() {
    let folder = folder();
    // The model has four features, so the samples are 4·10¹⁵ numbers.
    for (more, size) in [
        ("-o x.npy", "x.npy: it needs 28.4 PiB"),
        ("-o x.npy --float32", "x.npy: it needs 14.2 PiB"),
        ("-o x.csv", "x.csv: it needs 56.8 PiB"),
        ("-o /dev/null --labels k.npy", "k.npy: it needs 7.1 PiB"),
    ] {
        folder.refused(
            format!("sample data/iris3.json -n 1e15 {more}"),
            &[size, "; the disk has ", " free: make room or name a place on another disk"],
        );
    }
}
