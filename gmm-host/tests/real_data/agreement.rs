//! EM gives what scikit-learn 1.9.1 gives from the same start in the same number of iterations.
use crate::common::{BACKENDS, agreement};
use gmm_host::CovarianceType;
use libtest_mimic::Trial;

pub fn trials() -> Vec<Trial> {
    let of_types = |name: &'static str| CovarianceType::ALL.into_iter().map(move |t| (name, t));
    let trial = |(name, t)| {
        Trial::test(format!("agreement::{name}_{t}"), move || {
            for backend in BACKENDS {
                println!("{}", backend.name);
                agreement::check(name, t, backend);
            }
            Ok(())
        })
    };
    ["iris", "digits", "speech"].into_iter().flat_map(of_types).map(trial).collect()
}
