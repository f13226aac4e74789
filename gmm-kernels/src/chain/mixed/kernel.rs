use super::*;
use crate::math::{Float, float64};
use crate::simt::*;

/// The address of a component's, or a state's, number in the thread's row.
#[inline(always)]
fn place<T>(numbers: *mut T, stride: u64, which: u32, row: u32) -> *mut T {
    numbers.wrapping_add(which as usize * stride as usize + row as usize)
}

#[inline(always)]
unsafe fn of_states<T: Float>(args: &MixedArgs<T>) {
    let row = block_idx() * block_dim() + thread_idx();
    if row >= args.rows {
        return;
    }
    counted!(for state in 0..args.n_states {
        let component = |i: u32| state * args.n_mix + i;
        let exponent = |i: u32| {
            // SAFETY: the component and the row exist.
            let (q, offset) = {
                let q = load(place(args.q, args.stride, component(i), row));
                (q, f64::load(args.offsets.wrapping_add(component(i) as usize)))
            };
            q.wide() + offset
        };
        let (mut largest, mut sum) = (f64::NEG_INFINITY, 0.0);
        counted!(for i in 0..args.n_mix {
            let q = exponent(i);
            largest = if q > largest { q } else { largest };
        });
        // No component of the state reaches the row, if the largest is −∞.
        let density = |i: u32| if largest > f64::NEG_INFINITY { float64::exp2(exponent(i) - largest) } else { 0.0 };
        counted!(for i in 0..args.n_mix {
            sum += density(i);
        });
        counted!(for i in 0..args.n_mix {
            let share = if sum > 0.0 { density(i) / sum } else { 0.0 };
            // SAFETY: only this thread reads or writes there.
            store(place(args.q, args.stride, component(i), row), T::narrow(share));
        });
        let log = if sum > 0.0 { largest + float64::log2(sum) } else { f64::NEG_INFINITY };
        store(place(args.states, args.stride, state, row), T::narrow(log));
    });
}

#[inline(always)]
unsafe fn of_components<T: Float>(args: &MixedArgs<T>) {
    let row = block_idx() * block_dim() + thread_idx();
    if row >= args.rows {
        return;
    }
    counted!(for state in 0..args.n_states {
        // SAFETY: the state and the row exist.
        let gamma = load(place(args.states, args.stride, state, row));
        counted!(for i in 0..args.n_mix {
            let at = place(args.q, args.stride, state * args.n_mix + i, row);
            // SAFETY: only this thread reads or writes there.
            store(at, load(at) * gamma);
        });
    });
}

kernels! {
    /// Computes the exponents of states, and the components' probabilities within them.
    chain_states_f32: MixedArgs<f32> = of_states;
    chain_states_f64: MixedArgs<f64> = of_states;
}

kernels! {
    /// Multiplies the components' probabilities by those of their states.
    chain_components_f32: MixedArgs<f32> = of_components;
    chain_components_f64: MixedArgs<f64> = of_components;
}
