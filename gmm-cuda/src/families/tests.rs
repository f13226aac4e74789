//! The choice among the families, on two devices.
use super::*;
use crate::likelihood::batch::group;
use gmm_core::model::covariances::CovarianceType;

pub const H200: Limits = Limits {
    multiprocessors: 132,
    l2: 60 << 20,
    shared_per_block: 227 << 10,
    shared_per_multiprocessor: 228 << 10,
    warpgroups: true,
};

/// The task from which those of tests differ.
pub const TASK: Task = Task {
    operation: Operation::EStep,
    n: 1_000_000,
    k: 8,
    d: 13,
    covariance: Covariance::Diagonal,
    central: false,
    digits: Digits::Neither,
    weighted: false,
    gaps: false,
};

fn tasks() -> impl Iterator<Item = Task> {
    let shapes = [(1, 1), (8, 13), (9, 13), (40, 16), (300, 16), (4000, 16), (8, 17), (4096, 1024), (1, 2000)];
    let sizes = [1, 5, 100, 10_000, 1_000_000, 100_000_000];
    let operations = [Operation::Total, Operation::Totals, Operation::Scores, Operation::EStep];
    let all = sizes.into_iter().flat_map(move |n| shapes.map(|(k, d)| (n, k, d)));
    all.flat_map(move |(n, k, d)| operations.map(|operation| Task { operation, n, k, d, ..TASK })).flat_map(|task| {
        let of_covariances =
            [Covariance::Diagonal, Covariance::Full, Covariance::Tied].map(|covariance| Task { covariance, ..task });
        // Missing values come only with diagonals.
        of_covariances.into_iter().chain([Task { gaps: true, ..task }]).flat_map(|task| {
            (0..8).map(move |bits| Task {
                weighted: bits & 1 != 0,
                central: bits & 2 != 0,
                digits: if bits & 4 != 0 { Digits::Expandable } else { Digits::Neither },
                ..task
            })
        })
    })
}

/// Each candidate is listed once and can be launched within the device's limits.
#[test]
fn every_task_has_candidates_that_can_be_launched() {
    for task in tasks() {
        let found = candidates(&task, None, &H200);
        let too_wide = task.d > 28 || task.d > 16 && !task.is_expandable();
        let no_batch = too_wide || task.k == 4000 || task.full() || task.weighted || task.gaps;
        assert_eq!(found.is_empty(), task.operation == Operation::Totals && no_batch, "{task}");
        for (i, variant) in found.iter().enumerate() {
            assert!(variant.is_launchable() && variant.family.problem(&task, &H200).is_none(), "{variant} for {task}");
            assert!(variant.shared_bytes(&task) <= H200.shared_per_block, "{variant} for {task}");
            assert!(!found[..i].contains(variant), "{variant} twice for {task}");
            assert!(variant.family.has(task.operation));
        }
    }
}

/// Only E-steps whose samples fit nowhere fall to the general kernels.
#[test]
fn float32_has_better_kernels_than_the_general_ones() {
    for task in tasks().filter(|task| !task.gaps) {
        let general = candidates(&task, None, &H200).iter().any(|variant| variant.family.name() == "general");
        let too_wide = task.operation == Operation::EStep && task.d >= 1024;
        assert!(!general || too_wide, "{task}");
    }
}

const CAPABILITY_8_0: Limits = Limits {
    multiprocessors: 108,
    l2: 40 << 20,
    shared_per_block: 163 << 10,
    shared_per_multiprocessor: 164 << 10,
    warpgroups: false,
};

/// Returns the tasks of a map's cell under each covariance type; plans treat `diag` and `spherical` as one.
fn tasks_of_maps() -> impl Iterator<Item = Task> {
    let operations = [Operation::Total, Operation::Scores, Operation::EStep];
    let cells = [false, true].into_iter().flat_map(|full| {
        let (features, components) = if full { CovarianceType::Full } else { CovarianceType::Diag }.grid();
        features.iter().flat_map(move |&d| components.iter().map(move |&k| (full, d, k)))
    });
    let tasks = cells.flat_map(move |cell| operations.map(|operation| (cell, operation)));
    tasks.flat_map(|((full, d, k), operation)| {
        let sizes = [100_000, 1_000_000].into_iter().flat_map(|n| (0..8).map(move |bits| (n, bits)));
        sizes.filter(move |(_, bits)| full || bits & 1 == 0).map(move |(n, bits)| Task {
            operation,
            n,
            k,
            d,
            covariance: match full {
                false => Covariance::Diagonal,
                true if bits & 1 == 0 => Covariance::Full,
                true => Covariance::Tied,
            },
            central: bits & 2 != 0,
            digits: if bits & 4 != 0 { Digits::Expandable } else { Digits::Neither },
            ..TASK
        })
    })
}

/// Mixtures with components many deviations apart (not `expandable`) are not for the tensor cores, and a block of
/// `weighted_sums` would take 1024 components at once, too many for shared memory. The list may only get shorter.
#[test]
fn few_cells_of_the_map_have_no_family_but_general() {
    const ONLY_GENERAL: [&str; 6] = [
        "8.0: estep n=1e5 k=1024 d=2 diag",
        "8.0: estep n=1e5 k=1024 d=2 diag central",
        "8.0: estep n=1e6 k=1024 d=2 diag",
        "8.0: estep n=1e6 k=1024 d=2 diag central",
        "9.0: estep n=1e5 k=1024 d=2 diag central",
        "9.0: estep n=1e6 k=1024 d=2 diag central",
    ];
    let of_device = |name: &str, limits: &Limits| {
        let only = |task: &Task| candidates(task, None, limits).iter().all(|v| v.family.name() == "general");
        let found: Vec<_> = tasks_of_maps().filter(only).map(|task| format!("{name}: {task}")).collect();
        found
    };
    let found = [of_device("8.0", &CAPABILITY_8_0), of_device("9.0", &H200)].concat();
    assert_eq!(found, ONLY_GENERAL);
}

#[test]
fn a_short_estep_is_not_timed() {
    let task = |n, k, d| Task { n, k, d, ..TASK };
    assert_eq!(candidates(&task(1_000_000, 8, 13), None, &H200).len(), 1);
    // `fused` gets few samples, few features, and mixtures that lose digits.
    let family = |n, d, digits| families(&Task { digits, ..task(n, 8, d) }, &H200);
    assert_eq!(family(1_000_000, 13, Digits::Expandable), [&FUSED_MMA as &dyn Family]);
    let cases =
        [(1_000_000, 13, Digits::Neither), (1_000_000, 5, Digits::Expandable), (10_000, 13, Digits::Expandable)];
    cases.into_iter().for_each(|(n, d, digits)| assert_eq!(family(n, d, digits), [&FUSED as &dyn Family]));
    assert!(candidates(&task(1_000_000, 64, 32), None, &H200).len() > 1);
    // Products of two features, triangles times features, and neither.
    let full = |n, k, d, digits| families(&Task { covariance: Covariance::Full, digits, ..task(n, k, d) }, &H200);
    assert_eq!(full(1_000_000, 9, 13, Digits::Expandable), [&EXPANDED_MMA as &dyn Family]);
    assert_eq!(full(200_000, 9, 2, Digits::Expandable), [&EXPANDED_MMA as &dyn Family]);
    assert_eq!(full(100_000, 9, 5, Digits::Expandable), [&FUSED_MMA as &dyn Family]);
    assert_eq!(full(1_000_000, 9, 13, Digits::Whitenable), [&FUSED_MMA as &dyn Family]);
    assert_eq!(full(1_000_000, 8, 13, Digits::Neither), [&FUSED as &dyn Family]);
    assert_eq!(full(1_000_000, 9, 13, Digits::Neither), [&WEIGHTED_SUMS as &dyn Family]);
    // Few components of many features are whitened, whether samples are many or some.
    let few = |n, k, d| full(n, k, d, Digits::Expandable);
    for n in [100_000, 1_000_000] {
        assert_eq!(few(n, 2, 28), [&WHITENED_MMA as &dyn Family]);
        assert_eq!(few(n, 9, 28)[0].name(), EXPANDED_MMA.facts().name);
        assert_eq!(few(n, 2, 64), [&WHITENED_WGMMA as &dyn Family]);
    }
    assert_eq!(few(10_000, 2, 64), [&WEIGHTED_SUMS as &dyn Family]);
    assert_eq!((few(100_000, 4, 300), few(50_000, 2, 784)), (vec![&WHITENED_MMA as _], vec![&GENERAL as _]));
    let expandable = Task { digits: Digits::Expandable, ..task(1_000_000, 17, 2) };
    assert_eq!(families(&expandable, &H200), [&EXPANDED_MMA as &dyn Family]);
}

/// A `tied` E-step uses linear terms on the tensor cores, except where `fused` computes few products in the time of its
/// launches; a requested family with linear terms uses them too.
#[test]
fn tied_esteps_are_linear() {
    let task = |n, k, d| Task { n, k, d, covariance: Covariance::Tied, digits: Digits::Expandable, ..TASK };
    let chosen = |n, k, d, limits: &Limits| {
        linear(&task(n, k, d), None, limits).map(|task| {
            assert!(task.is_linear());
            let found = candidates(&task, None, limits);
            assert!(found.iter().all(|variant| variant.family.problem(&task, limits).is_none()));
            found[0].family.name()
        })
    };
    for (n, k, d, family) in [
        (1_000_000, 8, 13, Some("fused_mma")),
        (1_000_000, 8, 5, None),
        (1_000_000, 16, 5, Some("fused_mma")),
        (1_000_000, 32, 5, Some("expanded_mma")),
        (10_000, 8, 13, None),
        (10_000, 8, 20, Some("fused_mma")),
        (1_000_000, 64, 32, Some("fused_mma")),
        (1_000_000, 8, 200, Some("fused_mma")),
        (1_000_000, 300, 32, Some("products_wgmma")),
        (1_000_000, 8, 300, Some("products_mma")),
        (1, 4096, 1024, None),
    ] {
        assert_eq!(chosen(n, k, d, &H200), family, "N={n} K={k} D={d}");
    }
    assert_eq!(chosen(1_000_000, 300, 32, &CAPABILITY_8_0), Some("products_mma"));
    let requested = |name| linear(&task(1000, 8, 5), find(name), &H200).is_some();
    assert!(["fused_mma", "expanded_mma", "products_mma", "products_wgmma"].into_iter().all(requested));
    assert!(!["fused", "weighted_sums", "whitened_mma", "whitened_wgmma", "general"].into_iter().any(requested));
    for operation in [Operation::Total, Operation::Scores] {
        let other =
            |n, k, d| linear(&Task { operation, ..task(n, k, d) }, None, &H200).map(|task| families(&task, &H200));
        let tiled: Option<Vec<&dyn Family>> = Some(vec![&TILED]);
        assert_eq!((other(1_000_000, 128, 2), other(1_000, 128, 2)), (tiled.clone(), None));
        // `small_k` computes totals with one product of a triangle.
        assert_eq!(other(1_000_000, 8, 13), tiled.filter(|_| operation == Operation::Scores));
    }
    let of_full = |operation, k, d| {
        let task = Task { operation, covariance: Covariance::Full, digits: Digits::Neither, ..task(1_000_000, k, d) };
        expanded(&task, None, &H200).is_some()
    };
    assert!(of_full(Operation::Total, 16, 2) && of_full(Operation::Scores, 8, 28) && !of_full(Operation::EStep, 16, 2));
    assert!(!of_full(Operation::Total, 8, 13) && !of_full(Operation::Scores, 16, 40));
    let full = Task { covariance: Covariance::Full, ..task(1_000_000, 64, 32) };
    let with_gaps = Task { gaps: true, ..task(1_000_000, 8, 13) };
    assert!([full, with_gaps].iter().all(|other| linear(other, None, &H200).is_none()));
}

#[test]
fn a_variant_survives_its_text() {
    let good = "small_k:128x4:28 tiled/32:128x3:all pair/8:256x8:all pair/1:32x8:all batch/16:64x6:0 \
        batch_mma/64:512x1:0 batch_wgmma/64:512x1:0 fused:128x3:0 fused_mma:512x1:0 expanded_mma:256x1:0 \
        products_mma/4:256x1:all products_wgmma:384x1:all whitened_wgmma:512x1:all whitened_mma/3:384x1:all \
        weighted_sums/8:192x2:all general:256x8:all";
    for text in good.split_whitespace() {
        assert_eq!(text.parse::<Variant>().unwrap().to_string(), text);
    }
    let bad = "small_k small_k:128x4 small_k:100x4:0 small_k/2:128x4:0 warp:128x4:0 pair/7:128x1:all \
        tiled/8:128x1:all tiled/24:128x1:all small_k:128x0:0 small_k:2048x1:0 small_k:128x4:-1 small_k:128x4:0:0 batch/0:64x1:0 \
        weighted_sums/4:128x1:all products_mma/3:256x1:all products_mma/1:1024x1:all \
        products_wgmma:128x1:all products_wgmma/2:384x1:all whitened_wgmma:256x1:all batch_wgmma/64:160x1:0 batch_wgmma/65:512x1:0";
    for text in bad.split_whitespace() {
        assert!(text.parse::<Variant>().is_err(), "{text}");
    }
}

#[test]
fn the_grid_covers_the_work_and_no_more() {
    let variant: Variant = "small_k:128x4:0".parse().unwrap();
    assert_eq!([1, 512, 513, 1 << 30].map(|n| variant.blocks(n, 132)), [1, 1, 2, 528]);
    let variant: Variant = "tiled/32:128x3:all".parse().unwrap();
    assert_eq!([512, 513].map(|n| variant.blocks(n, 132)), [1, 2]);
    let variant: Variant = "pair/8:256x3:all".parse().unwrap();
    assert_eq!([32, 33].map(|n| variant.blocks(n, 132)), [1, 2]);
    // The groups of a batch do not change its grid along x: a set's result does not depend on the other sets.
    let variant: Variant = "batch/16:128x3:all".parse().unwrap();
    assert_eq!(variant.blocks(1025, 132), 2);
    assert_eq!((group(variant.shape, 8, 13), group(variant.shape, 300, 16)), (16, 1));
}
