//! Numbers given on the command line, or in a file.
use crate::input::read_vector;
use anyhow::bail;
use gaussmix::io;
use gaussmix::model::{CovarianceType, Covariances};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    Given(Vec<f64>),
    File(PathBuf),
}

impl std::str::FromStr for Numbers {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<f64>, _> = text.split(',').map(|number| number.trim().parse()).collect();
        Ok(numbers.map_or_else(|_| Self::File(text.into()), Self::Given))
    }
}

impl Numbers {
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Given(_) => None,
            Self::File(path) => Some(path),
        }
    }

    pub fn vector(&self) -> anyhow::Result<Vec<f64>> {
        match self {
            Self::Given(numbers) => Ok(numbers.clone()),
            Self::File(path) => Ok(read_vector(path)?.to_vec()),
        }
    }

    /// Returns the numbers of a vector or a matrix, the rows one after the other.
    pub fn all(&self) -> anyhow::Result<Vec<f64>> {
        match self {
            Self::Given(numbers) => Ok(numbers.clone()),
            Self::File(path) => read_vector(path).map(|vector| vector.to_vec()).or_else(|_| Ok(self.matrix()?.1)),
        }
    }

    fn matrix(&self) -> anyhow::Result<(usize, Vec<f64>)> {
        let (rows, numbers) = match self {
            Self::Given(numbers) => (numbers.len().isqrt(), numbers.clone()),
            Self::File(path) => {
                let values = io::read_data(path)?.into_f64();
                (values.nrows(), values.iter().copied().collect())
            }
        };
        if rows * rows != numbers.len() {
            bail!("{} numbers are not the rows of a square matrix", numbers.len());
        }
        Ok((rows, numbers))
    }

    pub fn covariance(&self, covariance_type: CovarianceType) -> anyhow::Result<Covariances> {
        let (d, numbers) = match covariance_type {
            CovarianceType::Full | CovarianceType::Tied => self.matrix()?,
            CovarianceType::Diag => {
                let numbers = self.vector()?;
                (numbers.len(), numbers)
            }
            _ => (1, self.vector()?),
        };
        Ok(Covariances::from_vec(covariance_type, 1, d, numbers)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_or_a_file() {
        assert_eq!("1, -2.5,3e2".parse(), Ok(Numbers::Given(vec![1.0, -2.5, 300.0])));
        for name in ["prior.npy", "1,x", ""] {
            assert_eq!(name.parse(), Ok(Numbers::File(name.into())));
        }
        let numbers = |count| Numbers::Given(vec![1.0; count]);
        assert!(
            numbers(4).covariance(CovarianceType::Full).is_ok() && numbers(3).covariance(CovarianceType::Full).is_err()
        );
        assert!(numbers(3).covariance(CovarianceType::Diag).is_ok());
        assert!(numbers(2).covariance(CovarianceType::Spherical).is_err());
    }
}
