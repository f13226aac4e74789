//! `--halving` and `--grow`: the starts of a fit; noise.
use crate::common::*;
use ndarray::Array2;
use serde_json::Value;
use std::fs;

#[test]
fn halving_keeps_a_run_to_its_end() {
    let folder = folder();
    let base = "fit data/iris.csv -k 3 --n-init 8 --seed 1";
    let fit =
        |more: &str, threads: &str| json(folder.gmm(format!("{base} --json {more}")).env("RAYON_NUM_THREADS", threads));
    let all = fit("-o all.json", "2");
    let halved = fit("--halving -o halved.json", "1");
    // It is one of the runs, whose best is the best of all.
    assert_eq!(halved["converged"], true, "{halved}");
    assert!(number(&halved, "lower_bound") <= number(&all, "lower_bound"), "{halved} {all}");
    // The same bits on any number of threads.
    fit("--halving -o again.json", "2");
    assert_eq!(folder.text("halved.json"), folder.text("again.json"));
    let args = format!("{base} -o m.json --halving --checkpoint c.json");
    folder.refused_with(2, args, &["--halving", "--checkpoint"]);
}

#[test]
fn growing_finds_no_worse_models() {
    let folder = folder();
    let select = |more: &str| -> Vec<f64> {
        let report = folder.json(format!("select data/iris.csv -k 1:6 --json {more}"));
        report["candidates"].as_array().unwrap().iter().map(|row| row["value"].as_f64().unwrap()).collect()
    };
    let (plain, grown) = (select(""), select("--grow"));
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
    let precise = "--reg-covar 0 --tol 1e-7 --max-iter 1000 --json";
    let of_mclust = format!("--init-params hierarchical {precise}");
    let run = |command: &str| folder.json(format!("{command} {of_mclust}"));
    let found = run("select data/iris.csv -k 1:3 --covariance-type all -o best.json");
    assert_eq!(found["candidates"].as_array().unwrap().len(), 3 * 14);
    assert_eq!((&found["best"]["covariance_type"], &found["best"]["k"]), (&"VEV".into(), &2.into()));
    assert!((found["best"]["value"].as_f64().unwrap() - 561.7284621).abs() < 1e-3, "{}", found["best"]);
    assert_has(&folder.text("best.json"), &["\"VEV\""]);
    let icl = run("select data/iris.csv -k 2 --covariance-type VEV --criterion icl");
    assert!((icl["best"]["value"].as_f64().unwrap() - 561.72887565114).abs() < 1e-3, "{}", icl["best"]);
    // A model with a collapsed component is never the best.
    let failed = run("select data/iris.csv -k 5 --covariance-type VEE,VVV");
    assert!(failed["candidates"][0]["value"].is_null() && failed["best"]["covariance_type"] == "full", "{failed}");
    // A file keeps the model, from which a fit goes on.
    for file in ["m.json", "m.npz"] {
        run(&format!("fit data/iris.csv -k 2 --covariance-type VEV -o {file}"));
        let again = folder.json(format!("fit data/iris.csv --init {file} -o again.json {precise}"));
        assert_eq!((&again["covariance_type"], &again["n_iter"]), (&"VEV".into(), &2.into()), "{again}");
    }
    let unknown = "fit data/iris.csv -k 2 --covariance-type VVX -o m.json";
    folder.refused_with(2, unknown, &["a model of mclust such as VEV"]);
}

#[test]
fn noise_is_fitted_written_and_predicted() {
    let folder = folder();
    let iris = fs::read_to_string(data("iris.csv")).unwrap();
    // Ten rows far from all flowers.
    let far = (0..10).map(|i| format!("{}.5,{}.25,{}.75,{}.5\n", i % 3 * 9, i * 2, 20 - i, i * 7 % 11));
    folder.write("noisy.csv", iris + &far.collect::<String>());
    let fit = "fit noisy.csv -k 2 --noise-component default --covariance-type VEV --seed 1 -o";
    let report = folder.json(format!("{fit} m.json --json --plot m.svg"));
    let noise = &report["noise"];
    assert!((number(noise, "weight") - 10.0 / 160.0).abs() < 0.03 && number(noise, "volume") > 1.0, "{report}");
    assert_eq!((report["k"].as_u64(), report["covariance_type"].as_str()), (Some(2), Some("VEV")));
    assert_has(&folder.text("m.svg"), &["noise: 0.0"]);
    assert_has(&folder.run(format!("{fit} again.npz")), &["noise         weight 0.0"]);
    folder.run("convert again.npz back.json");
    let weights = |name: &str| -> Value {
        let model: Value = serde_json::from_str(&folder.text(name)).unwrap();
        assert_eq!(model["means"].as_array().unwrap().len(), 2, "{model}");
        model["weights"].clone()
    };
    assert_eq!(weights("m.json"), weights("back.json"));
    folder.run("predict m.json noisy.csv -o labels.csv");
    let labels = folder.text("labels.csv");
    let last: Vec<&str> = labels.lines().skip(151).collect();
    assert_eq!((last.len(), last.iter().filter(|label| **label == "-1").count() > 7), (10, true), "{last:?}");
    for (code, args, message) in [
        (2, "fit noisy.csv -k 2 --noise-component spread=1 -o n.json", "`spread=1`"),
        (2, "fit noisy.csv -k 2 --noise-component 0.1 --variational -o n.json", "--variational"),
        (1, "convert m.json m.h", "without_noise"),
    ] {
        folder.refused_with(code, args, &[message]);
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
    folder.save("x.npy", &x);
    folder.save("s.npy", &covariances(None));
    folder.save("bad.npy", &covariances(Some(2500)));
    let fit = |noise: &str, more: &str| format!("fit x.npy -k 2 --noise {noise} --device cpu --seed 1 -o {more}");
    folder.run(fit("s.npy", "whole.json"));
    let report = folder.json(fit("s.npy", "chunks.json --json --memory 60K"));
    assert!(report["device"].as_str().unwrap().contains("chunks"), "{report}");
    // Sums of chunks are rounded in another order, and so the starts are.
    let (whole, chunks) = (folder.model("whole.json"), folder.model("chunks.json"));
    assert!(whole.means().iter().zip(chunks.means()).all(|(a, b)| (a - b).abs() < 1e-6), "{whole:?} {chunks:?}");
    for (more, row) in [("m.json", "row 2500"), ("m.json --memory 60K", "of the chunk that begins at row")] {
        folder.refused(fit("bad.npy", more), &[row, "not positive semidefinite"]);
    }
    // Chains run with noise, and do not resume without it.
    let chain = "mcmc x.npy -k 1 --warmup 100 --draws 50 --chains 1 -o run";
    folder.run(format!("{chain} --noise s.npy"));
    folder.save("other.npy", &(1.01 * covariances(None)));
    folder.fails(1, format!("{chain} --noise other.npy --resume"));
    folder.run(format!("{chain} --noise s.npy --resume"));
}
