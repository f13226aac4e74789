//! Counting loops of device code.

/// A counting loop, written like `for` and compiled as `while`: `counted!(for i in 0..N { … });`, also with `a..=b` and
/// with `(a..b).step_by(step)` and `(a..b).rev()`.
///
/// A thread's arrays stay in registers only if the compiler knows every index into them, so loops over them must be
/// unrolled. Both compilers unroll a `while` loop with a constant bound; rust-cuda's does not unroll a `for` loop,
/// which calls the iterator of a range. Bound and step are computed again in each round: a bound of `opaque` keeps a
/// loop from being unrolled. The body may `break`, but not `continue`, which would skip the step.
macro_rules! counted {
    (for $i:ident in ($($range:tt)+).step_by($step:expr) $body:block) => {
        counted!(@start $i $step, $body [] $($range)+)
    };
    (for $i:ident in ($start:tt..$end:expr).rev() $body:block) => {{
        let mut $i = $end;
        while $i > $start {
            $i -= 1;
            $body
        }
    }};
    (for $i:ident in $($rest:tt)+) => { counted!(@range $i [] $($rest)+) };
    // Moves the tokens of the range before the body into the brackets, one by one.
    (@range $i:ident [$($range:tt)+] $body:block) => { counted!(@start $i 1, $body [] $($range)+) };
    (@range $i:ident [$($range:tt)*] $next:tt $($rest:tt)+) => { counted!(@range $i [$($range)* $next] $($rest)+) };
    // Moves the tokens of the range's start into the brackets, one by one.
    (@start $i:ident $step:expr, $body:block [$($start:tt)+] .. $($end:tt)+) => {{
        let mut $i = $($start)+;
        while $i < $($end)+ {
            $body
            $i += $step;
        }
    }};
    (@start $i:ident $step:expr, $body:block [$($start:tt)+] ..= $($end:tt)+) => {{
        let mut $i = $($start)+;
        while $i <= $($end)+ {
            $body
            $i += $step;
        }
    }};
    (@start $i:ident $step:expr, $body:block [$($start:tt)*] $next:tt $($rest:tt)+) => {
        counted!(@start $i $step, $body [$($start)* $next] $($rest)+)
    };
}

/// A counting loop over registers with constant bounds of at most 16, which rust-cuda's compiler gets round by round:
/// `written_out!(for i in 0..N { … });`, also with `(0..N).rev()`; a bound of several words is in parentheses.
///
/// That compiler leaves a loop rolled whose body is long once the loops inside are unrolled, or has loops whose bounds
/// depend on `i`; all arrays that `i` is an index into are then in local memory. `cargo xtask rust-cuda --check` names
/// the loops that need this macro.
macro_rules! written_out {
    (for $i:ident in $start:tt..$end:tt $body:block) => {
        #[cfg(not(feature = "rust-cuda"))]
        #[allow(unused_parens)]
        {
            counted!(for $i in $start..$end $body);
        }
        #[cfg(feature = "rust-cuda")]
        written_out!(@rounds $i $start $end $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    };
    (for $i:ident in ($start:tt..$end:tt).rev() $body:block) => {
        #[cfg(not(feature = "rust-cuda"))]
        counted!(for $i in ($start..$end).rev() $body);
        #[cfg(feature = "rust-cuda")]
        written_out!(@rounds $i $start $end $body 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0);
    };
    // The index is a constant, so that bounds of a loop inside can depend on it. Clippy takes the rounds that
    // do not exist for mistakes.
    (@rounds $i:ident $start:tt $end:tt $body:block $($round:literal)+) => {
        const { assert!($end <= 16) };
        $(
            #[allow(non_upper_case_globals, unconditional_panic, unused_assignments, clippy::all)]
            {
                if const { $start < $round + 1 && $round < $end } {
                    const $i: usize = $round;
                    $body
                }
            }
        )+
    };
}
