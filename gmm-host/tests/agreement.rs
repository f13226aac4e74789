//! EM gives what scikit-learn 1.9.1 gives from the same start in the same number of iterations.
#![allow(missing_docs)]
mod common;
use common::{BACKENDS, agreement};
use gmm_host::CovarianceType;

macro_rules! agreement {
    ($($test:ident: $name:literal $t:ident;)*) => {$(
        #[test]
        fn $test() {
            for backend in BACKENDS {
                println!("{}", backend.name);
                agreement::check($name, CovarianceType::$t, backend);
            }
        }
    )*};
}

agreement! {
    iris_full: "iris" Full;
    iris_tied: "iris" Tied;
    iris_diag: "iris" Diag;
    iris_spherical: "iris" Spherical;
    digits_full: "digits" Full;
    digits_tied: "digits" Tied;
    digits_diag: "digits" Diag;
    digits_spherical: "digits" Spherical;
    speech_full: "speech" Full;
    speech_tied: "speech" Tied;
    speech_diag: "speech" Diag;
    speech_spherical: "speech" Spherical;
}
