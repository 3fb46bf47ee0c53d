//! Work on each of many classes, shared among threads.

/// With fewer, a thread costs more than it saves.
const LEAST: usize = 1024;

/// Cuts a list into as many parts as there are threads, and gives what `work` makes of each, in their order.
pub fn in_parts<T: Send, R: Send>(
    list: &mut [T],
    threads: usize,
    work: impl Fn(&mut [T]) -> R + Sync,
) -> Vec<R> {
    if threads < 2 || list.len() < LEAST {
        return vec![work(list)];
    }
    let length = list.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = list.chunks_mut(length).map(|part| scope.spawn(move || work(part))).collect();
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{LEAST, in_parts};

    #[test]
    fn each_is_worked_on_once_and_the_order_stays() {
        for (length, threads) in [(0, 3), (5, 3), (LEAST, 1), (LEAST, 3), (LEAST + 1, 2000)] {
            let mut list: Vec<usize> = (0..length).collect();
            let parts = in_parts(&mut list, threads, |part| {
                part.iter_mut().for_each(|number| *number += 1);
                part.to_vec()
            });
            assert_eq!(parts.concat(), (1..=length).collect::<Vec<_>>());
            assert_eq!(list, parts.concat());
        }
    }
}
