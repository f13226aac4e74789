//! Counting loops of device code.

/// A counting loop, written like `for` and compiled as `while`: `counted!(for i in 0..N { … });`, also with `a..=b` and
/// with `(a..b).step_by(step)`.
///
/// A thread's arrays stay in registers only if the compiler knows every index into them, so loops over them must be
/// unrolled. Both compilers unroll a `while` loop with a constant bound; rust-cuda's does not unroll a `for` loop,
/// which calls the iterator of a range. Bound and step are computed again in each round: a bound of `opaque` keeps a
/// loop from being unrolled. The body may `break`, but not `continue`, which would skip the step.
macro_rules! counted {
    (for $i:ident in ($($range:tt)+).step_by($step:expr) $body:block) => {
        counted!(@start $i $step, $body [] $($range)+)
    };
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
