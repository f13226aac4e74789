//! `--halving` and `--grow`: the starts of a fit; noise.
use crate::common::*;
use gaussmix::model::Mixture;
use ndarray::Array2;
use serde_json::Value;
use std::fs;

#[test]
fn halving_keeps_a_run_to_its_end() {
    let folder = folder();
    let iris = data("iris.csv");
    let iris = iris.to_str().unwrap();
    let base = [iris, "-k", "3", "--n-init", "8", "--seed", "1"];
    let fit = |more: &[&str], threads: &str| -> Value {
        let mut run = gmm(&folder);
        run.arg("fit").args(base).args(more).arg("--json").env("RAYON_NUM_THREADS", threads);
        let run = run.assert().success();
        serde_json::from_slice(&run.get_output().stdout).unwrap()
    };
    let all = fit(&["-o", "all.json"], "2");
    let halved = fit(&["--halving", "-o", "halved.json"], "1");
    // It is one of the runs, whose best is the best of all.
    assert_eq!(halved["converged"], true, "{halved}");
    assert!(number(&halved, "lower_bound") <= number(&all, "lower_bound"), "{halved} {all}");
    // The same bits on any number of threads.
    fit(&["--halving", "-o", "again.json"], "2");
    let model = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(model("halved.json"), model("again.json"));
    let mut refused = gmm(&folder);
    refused.arg("fit").args(base).args(["-o", "m.json", "--halving", "--checkpoint", "c.json"]);
    let refused = refused.assert().code(2);
    let text = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(text.contains("--halving") && text.contains("--checkpoint"), "{text}");
}

#[test]
fn growing_finds_no_worse_models() {
    let folder = folder();
    let iris = data("iris.csv");
    let select = |more: &[&str]| -> Vec<f64> {
        let args = ["select", iris.to_str().unwrap(), "-k", "1:6", "--json"];
        let run = gmm(&folder).args(args).args(more).assert().success();
        let report: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
        report["candidates"].as_array().unwrap().iter().map(|row| row["value"].as_f64().unwrap()).collect()
    };
    let (plain, grown) = (select(&[]), select(&["--grow"]));
    assert_eq!((plain.len(), grown.len()), (6, 6));
    // The ordinary start is kept beside the grown one.
    for (plain, grown) in plain.iter().zip(&grown) {
        assert!(*grown <= plain + 1e-9 * plain.abs(), "{grown} {plain}");
    }
    assert!(plain.iter().zip(&grown).any(|(plain, grown)| *grown < plain - 1.0), "{plain:?} {grown:?}");
}

/// The 14 models, hierarchical starts and ICL; the best of mclust for iris is VEV with 2 components, whose numbers are
/// mclust's but for its looser end.
#[test]
fn models_of_mclust_are_selected_written_and_read() {
    let folder = folder();
    let iris = data("iris.csv");
    let iris = iris.to_str().unwrap();
    let of_mclust =
        ["--init-params", "hierarchical", "--reg-covar", "0", "--tol", "1e-7", "--max-iter", "1000", "--json"];
    let run = |command: &[&str]| -> Value {
        let run = gmm(&folder).args(command).args(of_mclust).assert().success();
        serde_json::from_slice(&run.get_output().stdout).unwrap()
    };
    let found = run(&["select", iris, "-k", "1:3", "--covariance-type", "all", "-o", "best.json"]);
    assert_eq!(found["candidates"].as_array().unwrap().len(), 3 * 14);
    assert_eq!((&found["best"]["covariance_type"], &found["best"]["k"]), (&"VEV".into(), &2.into()));
    assert!((found["best"]["value"].as_f64().unwrap() - 561.7284621).abs() < 1e-3, "{}", found["best"]);
    assert!(fs::read_to_string(folder.path().join("best.json")).unwrap().contains("\"VEV\""));
    let icl = run(&["select", iris, "-k", "2", "--covariance-type", "VEV", "--criterion", "icl"]);
    assert!((icl["best"]["value"].as_f64().unwrap() - 561.72887565114).abs() < 1e-3, "{}", icl["best"]);
    // A model with a collapsed component is never the best.
    let failed = run(&["select", iris, "-k", "5", "--covariance-type", "VEE,VVV"]);
    assert!(failed["candidates"][0]["value"].is_null() && failed["best"]["covariance_type"] == "full", "{failed}");
    // A file keeps the model, from which a fit goes on.
    for file in ["m.json", "m.npz"] {
        run(&["fit", iris, "-k", "2", "--covariance-type", "VEV", "-o", file]);
        let again = gmm(&folder)
            .args(["fit", iris, "--init", file, "-o", "again.json"])
            .args(&of_mclust[2..])
            .assert()
            .success();
        let again: Value = serde_json::from_slice(&again.get_output().stdout).unwrap();
        assert_eq!((&again["covariance_type"], &again["n_iter"]), (&"VEV".into(), &2.into()), "{again}");
    }
    let unknown =
        gmm(&folder).args(["fit", iris, "-k", "2", "--covariance-type", "VVX", "-o", "m.json"]).assert().code(2);
    assert!(String::from_utf8_lossy(&unknown.get_output().stderr).contains("a model of mclust such as VEV"));
}

#[test]
fn noise_is_fitted_written_and_predicted() {
    let folder = folder();
    let iris = fs::read_to_string(data("iris.csv")).unwrap();
    // Ten rows far from all flowers.
    let far = (0..10).map(|i| format!("{}.5,{}.25,{}.75,{}.5\n", i % 3 * 9, i * 2, 20 - i, i * 7 % 11));
    fs::write(folder.path().join("noisy.csv"), iris + &far.collect::<String>()).unwrap();
    let run = |args: &[&str]| gmm(&folder).args(args).assert();
    let fit = [
        "fit",
        "noisy.csv",
        "-k",
        "2",
        "--noise-component",
        "default",
        "--covariance-type",
        "VEV",
        "--seed",
        "1",
        "-o",
    ];
    let report = run(&[&fit[..], &["m.json", "--json", "--plot", "m.svg"]].concat()).success();
    let report: Value = serde_json::from_slice(&report.get_output().stdout).unwrap();
    let noise = &report["noise"];
    assert!((number(noise, "weight") - 10.0 / 160.0).abs() < 0.03 && number(noise, "volume") > 1.0, "{report}");
    assert_eq!((report["k"].as_u64(), report["covariance_type"].as_str()), (Some(2), Some("VEV")));
    assert!(fs::read_to_string(folder.path().join("m.svg")).unwrap().contains("noise: 0.0"));
    let text =
        String::from_utf8(run(&[&fit[..], &["again.npz"]].concat()).success().get_output().stdout.clone()).unwrap();
    assert!(text.contains("noise         weight 0.0"), "{text}");
    run(&["convert", "again.npz", "back.json"]).success();
    let weights = |name: &str| -> Value {
        let model: Value = serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap();
        assert_eq!(model["means"].as_array().unwrap().len(), 2, "{model}");
        model["weights"].clone()
    };
    assert_eq!(weights("m.json"), weights("back.json"));
    run(&["predict", "m.json", "noisy.csv", "-o", "labels.csv"]).success();
    let labels = fs::read_to_string(folder.path().join("labels.csv")).unwrap();
    let last: Vec<&str> = labels.lines().skip(151).collect();
    assert_eq!((last.len(), last.iter().filter(|label| **label == "-1").count() > 7), (10, true), "{last:?}");
    for (args, message) in [
        (vec!["fit", "noisy.csv", "-k", "2", "--noise-component", "spread=1", "-o", "n.json"], "`spread=1`"),
        (
            vec!["fit", "noisy.csv", "-k", "2", "--noise-component", "0.1", "--variational", "-o", "n.json"],
            "--variational",
        ),
        (vec!["convert", "m.json", "m.h"], "without_noise"),
    ] {
        let refused = run(&args).failure();
        let text = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
        assert!(text.contains(message), "{args:?}: {text}");
    }
}

/// Noise of each row, in memory and in chunks of a file, has one fit; noise that is none is named by its row.
#[test]
fn noise_of_the_samples_is_read_in_chunks() {
    let folder = folder();
    let (n, d) = (3000, 2);
    let number = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f64 / (1 << 24) as f64;
    let x = Array2::from_shape_fn((n, d), |(i, j)| number(3 * i + j) + number(7 * i + j) + (i % 2 * 4) as f64);
    let covariances = |bad: Option<usize>| {
        Array2::from_shape_fn((n, d * d), |(i, j)| match j {
            0 | 3 => 0.01 + 0.2 * number(11 * i + j),
            _ if bad == Some(i) => 9.0,
            _ => 0.005,
        })
    };
    let write = |name: &str, x: &Array2<f64>| ndarray_npy::write_npy(folder.path().join(name), x).unwrap();
    write("x.npy", &x);
    write("s.npy", &covariances(None));
    write("bad.npy", &covariances(Some(2500)));
    let fit = |noise: &str, more: &[&str]| {
        let args = ["fit", "x.npy", "-k", "2", "--noise", noise, "--device", "cpu", "--seed", "1", "-o"];
        gmm(&folder).args(args).args(more).assert()
    };
    fit("s.npy", &["whole.json"]).success();
    let report = fit("s.npy", &["chunks.json", "--json", "--memory", "60K"]).success();
    let report: Value = serde_json::from_slice(&report.get_output().stdout).unwrap();
    assert!(report["device"].as_str().unwrap().contains("chunks"), "{report}");
    let model = |name: &str| -> Mixture { gaussmix::io::read_model(folder.path().join(name)).unwrap() };
    // Sums of chunks are rounded in another order, and so the starts are.
    let (whole, chunks) = (model("whole.json"), model("chunks.json"));
    assert!(whole.means().iter().zip(chunks.means()).all(|(a, b)| (a - b).abs() < 1e-6), "{whole:?} {chunks:?}");
    for (more, row) in
        [(&["m.json"][..], "row 2500"), (&["m.json", "--memory", "60K"], "of the chunk that begins at row")]
    {
        let failed = fit("bad.npy", more).code(1);
        let message = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
        assert!(message.contains(row) && message.contains("not positive semidefinite"), "{message}");
    }
    // Chains run with noise, and do not resume without it.
    let chain = ["mcmc", "x.npy", "-k", "1", "--warmup", "100", "--draws", "50", "--chains", "1", "-o", "run"];
    gmm(&folder).args(chain).args(["--noise", "s.npy"]).assert().success();
    write("other.npy", &covariances(None).mapv(|v| 1.01 * v));
    gmm(&folder).args(chain).args(["--noise", "other.npy", "--resume"]).assert().code(1);
    gmm(&folder).args(chain).args(["--noise", "s.npy", "--resume"]).assert().success();
}
