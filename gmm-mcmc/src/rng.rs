//! Random numbers. Each chain has a ChaCha stream, whose position can be saved.
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Returns the generator of a chain. It does not depend on the number of chains.
pub(crate) fn stream(seed: u64, chain: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(chain as u64);
    rng
}

#[derive(Serialize, Deserialize)]
struct Position {
    seed: [u8; 32],
    stream: u64,
    /// The number of 32-bit words used.
    word: u128,
}

pub(crate) fn serialize<S: Serializer>(rng: &ChaCha8Rng, serializer: S) -> Result<S::Ok, S::Error> {
    Position { seed: rng.get_seed(), stream: rng.get_stream(), word: rng.get_word_pos() }.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ChaCha8Rng, D::Error> {
    let Position { seed, stream, word } = Position::deserialize(deserializer)?;
    let mut rng = ChaCha8Rng::from_seed(seed);
    rng.set_stream(stream);
    rng.set_word_pos(word);
    Ok(rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngExt};

    #[derive(Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] ChaCha8Rng);

    #[test]
    fn a_saved_generator_goes_on_where_it_was() {
        for words in [0, 1, 3, 15, 16, 17, 64, 1001] {
            let mut rng = stream(7, 3);
            for _ in 0..words {
                rng.next_u32();
            }
            let bytes = postcard::to_stdvec(&Holder(rng.clone())).unwrap();
            let Holder(mut again) = postcard::from_bytes(&bytes).unwrap();
            for _ in 0..100 {
                assert_eq!(rng.random::<f64>().to_bits(), again.random::<f64>().to_bits());
            }
        }
    }

    #[test]
    fn chains_have_different_numbers() {
        assert_ne!(stream(7, 0).next_u64(), stream(7, 1).next_u64());
        assert_ne!(stream(7, 0).next_u64(), stream(8, 0).next_u64());
    }
}
