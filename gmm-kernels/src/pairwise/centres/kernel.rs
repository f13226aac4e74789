use super::*;
use crate::simt::*;

kernel! {
    /// Computes the Gaussian kernel of all rows with all centres.
    pub unsafe fn gaussian_centres(args: CentresArgs) {
        let (across, down) = (thread_idx() % THREADS_ACROSS, thread_idx() / THREADS_ACROSS);
        let centre = block_idx() * THREADS_ACROSS + across;
        let quad = (block_idx_y() * (THREADS / THREADS_ACROSS) + down) * THREAD_QUADS as u32;
        if centre >= args.centres.quads() || quad >= args.x.quads() {
            return;
        }
        // A thread at the end reads its first quad again instead of one that does not exist.
        let second = if quad + 1 < args.x.quads() { quad + 1 } else { quad };
        let quads = [quad, second];
        let mut sums = [[[0.0f32; QUAD]; QUAD]; THREAD_QUADS];
        counted!(for j in 0..args.d as usize {
            // SAFETY: the quads and the column exist.
            let c = load_f32x4(args.centres.quad(centre, j));
            counted!(for r in 0..THREAD_QUADS {
                let x = load_f32x4(args.x.quad(quads[r], j));
                counted!(for p in 0..QUAD {
                    counted!(for i in 0..QUAD {
                        let t = x[p] - c[i];
                        sums[r][p][i] = fma(t, t, sums[r][p][i]);
                    });
                });
            });
        });
        let m = args.centres.n as usize;
        let first = QUAD * centre as usize;
        counted!(for p in 0..THREAD_QUADS * QUAD {
            let row = QUAD * quad as usize + p;
            if row < args.x.n as usize {
                let mut v = sums[p / QUAD][p % QUAD];
                counted!(for i in 0..QUAD {
                    v[i] = exp2(v[i] * args.factor);
                });
                let to = args.values.wrapping_add(row * m + first);
                // SAFETY: row and centres exist; if M is a multiple of 4, so is the place's distance from the start.
                if m.is_multiple_of(QUAD) {
                    store4(to, v);
                } else {
                    counted!(for i in 0..QUAD {
                        if first + i < m {
                            store(to.add(i), v[i]);
                        }
                    });
                }
            }
        });
    }
}
