use crate::common::*;
use gaussmix::data::Samples;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use ndarray::Array2;

/// Returns the iris data with every seventh value missing.
fn holes() -> Array2<f64> {
    let mut x = iris();
    x.iter_mut().enumerate().filter(|(i, _)| i % 7 == 3).for_each(|(_, v)| *v = f64::NAN);
    x
}

/// Writes the data as text, with every notation of a missing value.
fn write_csv(folder: &Folder, name: &str, x: &Array2<f64>) {
    let names = ["", "NA", "NaN", "null", "nan", " na "];
    let field = |(i, v): (usize, &f64)| if v.is_nan() { names[i % names.len()].into() } else { v.to_string() };
    let fields: Vec<String> = x.iter().enumerate().map(field).collect();
    let lines: Vec<String> = fields.chunks(x.ncols()).map(|row| row.join(",")).collect();
    folder.write(name, format!("a,b,c,d\n{}\n", lines.join("\n")));
}

#[test]
fn text_and_arrays_with_missing_values_are_the_same_data() {
    let folder = folder();
    let x = holes();
    write_csv(&folder, "x.csv", &x);
    folder.save("x.npy", &x);
    let reports: Vec<_> =
        ["x.csv", "x.npy"].map(|name| folder.fit(format!("{name} --missing -k 3 -o {name}.json"))).into();
    for name in ["log_likelihood", "bic", "aic", "lower_bound"] {
        assert_eq!(number(&reports[0], name), number(&reports[1], name), "{name}");
    }
    let model = folder.model("x.csv.json");
    assert_eq!(model, folder.model("x.npy.json"));
    // The difference from the reference is some hundred roundings.
    let mut reference = ReferenceEvaluator::new(Samples::with_missing(x.view()).unwrap());
    let truth = reference.log_likelihood(&model).unwrap();
    let found = number(&reports[0], "log_likelihood");
    assert!((found - truth).abs() < 1e-10 * truth.abs(), "{found} {truth}");
    // Scores and components of the samples.
    folder.run("score x.csv.json x.csv --missing --per-sample scores.csv");
    let scores = folder.numbers("scores.csv");
    for (score, truth) in scores.iter().zip(reference.score_samples(&model).unwrap()) {
        assert!((score - truth).abs() < 1e-10, "{score} {truth}");
    }
    folder.run("predict x.csv.json x.npy --missing --proba -o p.npy");
    let truth = reference.predict_proba(&model).unwrap();
    assert!(folder.numbers("p.npy").iter().zip(&truth).all(|(a, b)| (a - b).abs() < 1e-10));
    // Without the option, the error says where and names the option; files stay as they are.
    for name in ["x.csv", "x.npy"] {
        folder.refused(format!("fit {name} -k 2 -o m.json"), &[name, "NaN at row 0, column 3", "--missing"]);
        folder.refused(format!("score x.csv.json {name}"), &[name, "NaN at row 0, column 3", "--missing"]);
    }
    // A GPU is refused with a reason, if there is one; `auto` computes on the CPU.
    let report = folder.fit("x.npy --missing -k 2 --device auto");
    assert!(report["device"].as_str().unwrap().starts_with("cpu"), "{report}");
}

#[test]
fn chunks_and_standardised_units_give_the_same() {
    let folder = folder();
    // Long enough for chunks.
    let short = holes();
    let x = Array2::from_shape_fn((3000, 4), |(i, j)| short[[i % 150, j]] + (i / 150 * (j + 1)) as f64 * 1e-3);
    folder.save("x.npy", &x);
    let fitted = |more: &str| {
        number(
            &folder.fit(format!("x.npy --missing -k 2 --covariance-type diag --max-iter 5 --tol 0 {more}")),
            "log_likelihood",
        )
    };
    // The same start for both: sums in a different order, for five iterations.
    let (whole, chunks) = (fitted(""), fitted("--memory 100k"));
    assert!((whole - chunks).abs() < 1e-8 * whole.abs(), "{whole} {chunks}");
    let (whole, chunks) = (fitted("--standardize"), fitted("--standardize --memory 100k"));
    assert!((whole - chunks).abs() < 1e-8 * whole.abs(), "{whole} {chunks}");
    // The figures of a standardised fit are in the data's units.
    let report = folder.fit("x.npy --missing -k 2 --standardize -o m.json");
    let score = folder.json("score m.json x.npy --missing --json");
    let (a, b) = (number(&report, "log_likelihood"), number(&score, "log_likelihood"));
    assert!((a - b).abs() < 1e-9 * a.abs(), "{a} {b}");
    // Chunks of imputed data equal the data imputed at once.
    for more in ["", "--draws 2 --seed 3"] {
        let impute = |name: &str, memory: &str| {
            folder.run(format!("impute m.json x.npy -o {name} {more} {memory}"));
            folder.bytes(name)
        };
        assert_eq!(impute("a.npy", ""), impute("b.npy", "--memory 100k"));
    }
}

#[test]
fn imputed_data_is_complete() {
    let folder = folder();
    let x = holes();
    write_csv(&folder, "x.csv", &x);
    folder.fit("x.csv --missing -k 3 -o m.json");
    let model = folder.model("m.json");
    folder.run("impute m.json x.csv -o full.csv");
    let full = folder.numbers("full.csv");
    assert_eq!(full, model.impute(&Samples::with_missing(x.view()).unwrap()).unwrap());
    let said = folder.run("impute m.json x.csv --draws 3 --seed 7 -o draws.npy");
    assert!(said.contains("3 draws of 150 samples") && said.contains("% missing"), "{said}");
    let draws = folder.numbers("draws.npy");
    assert_eq!(draws.dim(), (450, 4));
    let want = model.impute_draws(&Samples::with_missing(x.view()).unwrap(), 0..3, 7, 0).unwrap();
    assert!(draws.iter().zip(&want).all(|(a, b)| a == b));
}

#[test]
fn samples_with_missing_values_are_drawn_where_they_are_expected() {
    let folder = folder();
    let circles = |x: &Array2<f64>, more: &str| {
        folder.save("x.npy", x);
        folder.fit(format!("x.npy --missing -k 2 --plot x.svg {more}"));
        let svg = folder.text("x.svg");
        // The circles of the lower bounds have another radius.
        let of =
            |fill| svg.lines().filter(|l| l.contains("<circle") && l.contains("r=\"2\"") && l.contains(fill)).count();
        let (open, all) = (of("fill=\"none\""), of(""));
        assert_eq!(svg.contains("150 samples (open: values missing), 2 components"), open > 0);
        (open, all)
    };
    let mut x = holes();
    x.row_mut(12).fill(f64::NAN);
    let incomplete = x.outer_iter().filter(|x| x.iter().any(|v| v.is_nan())).count() - 1;
    for more in ["", "--standardize"] {
        // The row without any value is not drawn.
        assert_eq!(circles(&x, more), (incomplete, 149));
    }
    x.fill(1.5);
    x.iter_mut().enumerate().for_each(|(i, v)| *v += (i * 7 % 13) as f64);
    assert_eq!(circles(&x, ""), (0, 150));
}

#[test]
fn rows_and_columns_without_values() {
    let folder = folder();
    let mut x = holes();
    x.row_mut(12).fill(f64::NAN);
    x.row_mut(40).fill(f64::NAN);
    write_csv(&folder, "x.csv", &x);
    let said = folder.notes("fit x.csv --missing -k 2 -o m.json");
    assert!(said.matches("2 rows have no observed value, the first is row 12").count() == 1, "{said}");
    folder.run("score m.json x.csv --missing --per-sample s.csv");
    assert_eq!(folder.numbers("s.csv")[[40, 0]], 0.0);
    x.column_mut(2).fill(f64::NAN);
    write_csv(&folder, "y.csv", &x);
    for args in ["fit y.csv -k 2", "fit y.csv --init m.json", "select y.csv -k 1:2"] {
        folder.refused(format!("{args} --missing"), &["y.csv", "nothing is observed in column 2"]);
    }
    folder.refused("mcmc y.csv --missing -k 1 -o post", &["nothing is observed in column 2"]);
}

#[test]
fn a_posterior_of_data_with_missing_values() {
    let folder = folder();
    let x = holes();
    write_csv(&folder, "x.csv", &x);
    let report = folder.json("mcmc x.csv -k 1 --missing --chains 2 --warmup 200 --draws 200 -o post --json");
    assert!(report.is_object(), "{report}");
    // The posterior mean of a mean is that of the observed values, within a few of its standard deviations (0.07).
    let text = folder.text("post-1.csv");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let column = lines.next().unwrap().split(',').position(|name| name.starts_with("means")).unwrap();
    let draws: Vec<f64> = lines.map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect();
    let mean = draws.iter().sum::<f64>() / draws.len() as f64;
    let seen: Vec<f64> = x.column(0).iter().copied().filter(|v| !v.is_nan()).collect();
    let want = seen.iter().sum::<f64>() / seen.len() as f64;
    assert!((mean - want).abs() < 0.1, "{mean} {want}");
}
