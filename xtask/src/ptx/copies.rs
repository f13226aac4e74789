//! Finds copies into shared memory that an assembler could put under a predicate.
//!
//! NVIDIA's ptxas 13.0, which drivers carry too, makes an illegal instruction of some `cp.async` that are to happen under a
//! condition: where the branch around them has nothing else in it, it turns the branch into predicates. So the kernels copy
//! from an address that exists, whether or not they need what is there. A loop is no such branch: it ends in a jump back.
use super::Entry;

/// A run of instructions that is entered at its start and left at its end only.
#[derive(Default)]
struct Block<'a> {
    labels: Vec<&'a str>,
    copies: usize,
    /// Instructions, but for an unconditional jump at the end.
    instructions: usize,
    /// Where it may go on, besides what follows it.
    target: Option<&'a str>,
    /// Whether it may go on with what follows it.
    falls_through: bool,
}

/// Each copy of an entry that a branch which ends right behind it jumps over.
pub fn problems(entry: &Entry) -> Vec<String> {
    let blocks = blocks(&entry.text);
    let number = |label: &str| blocks.iter().position(|block| block.labels.contains(&label));
    let successors = |i: usize| -> Vec<usize> {
        let jump = blocks[i].target.and_then(number);
        jump.into_iter().chain((blocks[i].falls_through && i + 1 < blocks.len()).then_some(i + 1)).collect()
    };
    // Past blocks that only jump on; a chain of them is shorter than the text.
    let arrive = |start: usize| {
        (0..blocks.len()).fold(start, |i, _| match successors(i).as_slice() {
            [on] if blocks[i].instructions == 0 => *on,
            _ => i,
        })
    };
    let next: Vec<Vec<usize>> = (0..blocks.len()).map(|i| successors(i).into_iter().map(arrive).collect()).collect();
    let mut problems = Vec::new();
    for (b, block) in blocks.iter().enumerate().filter(|(_, block)| block.copies > 0) {
        let before: Vec<usize> = (0..blocks.len()).filter(|p| next[*p].contains(&b) && (arrive(*p) == *p)).collect();
        let ([before], [after]) = (before.as_slice(), next[b].as_slice()) else { continue };
        // The other way either jumps over the block, or is a block of its own that ends where this one does.
        let others = next[*before].iter().filter(|other| **other != b);
        if others.into_iter().any(|other| other == after || next[*other] == [*after]) {
            problems.push(format!(
                "{}: {} copies into shared memory under a condition, of which ptxas may make an illegal instruction: copy \
                 from a clamped address instead",
                entry.name, block.copies
            ));
        }
    }
    problems
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut block = Block { falls_through: true, ..Block::default() };
    let mut empty = true;
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with('$')) {
            if !empty {
                blocks.push(std::mem::replace(&mut block, Block { falls_through: true, ..Block::default() }));
                empty = true;
            }
            block.labels.push(label);
            continue;
        }
        empty = false;
        let code = line.split("//").next().unwrap_or_default().trim_end_matches([';', ' ']);
        let words: Vec<&str> = code.split_whitespace().collect();
        let guarded = words.first().is_some_and(|word| word.starts_with('@'));
        let Some(operation) = words.get(usize::from(guarded)) else { continue };
        block.copies += usize::from(operation.starts_with("cp.async.c"));
        let jumps = *operation == "bra" || *operation == "bra.uni";
        block.instructions += usize::from(guarded || !jumps);
        if jumps || *operation == "ret" {
            block.target = words.last().copied().filter(|_| jumps);
            block.falls_through = guarded;
            blocks.push(std::mem::replace(&mut block, Block { falls_through: true, ..Block::default() }));
            empty = true;
        }
    }
    blocks.push(block);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: &str = "\tcp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd2;\n";

    fn found(text: &str) -> usize {
        problems(&Entry { name: "k".into(), text: text.replace("COPY\n", COPY) }).len()
    }

    #[test]
    fn copies_that_a_branch_jumps_over_are_found() {
        assert_eq!(found("\t@%p1 bra $L_1;\nCOPY\nCOPY\n$L_1:\n\tcp.async.commit_group;\n\tret;\n"), 1);
        // The other way has instructions of its own.
        let both = "\t@%p1 bra $L_1;\n\tbra.uni $L_2;\n$L_1:\nCOPY\n\tbra.uni $L_3;\n$L_2:\n\tmov.b32 %r1, 0;\n$L_3:\n\tret;\n";
        assert_eq!(found(both), 1);
    }

    #[test]
    fn copies_of_all_threads_and_of_loops_are_in_order() {
        assert_eq!(found("COPY\n\tcp.async.commit_group;\n\t@%p1 bra $L_1;\n\tmov.b32 %r1, 0;\n$L_1:\n\tret;\n"), 0);
        assert_eq!(found("\t@%p1 bra $L_2;\n$L_1:\nCOPY\n\t@%p2 bra $L_1;\n$L_2:\n\tret;\n"), 0);
    }
}
