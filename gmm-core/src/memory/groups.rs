//! Memory limits of the process's control groups on Linux, of both versions.
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// A memory limit and its remainder, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub total: u64,
    pub left: u64,
}

struct Files {
    system: &'static str,
    limit: &'static str,
    /// The counts of memory that cannot be reclaimed: pages that belong to no file. They include the groups below.
    held: [&'static str; 2],
}

const V1: Files = Files { system: "cgroup", limit: "memory.limit_in_bytes", held: ["total_rss", "total_shmem"] };
const V2: Files = Files { system: "cgroup2", limit: "memory.max", held: ["anon", "shmem"] };

/// Returns the limits of the process's groups and of those above them; empty on a system without groups. `root` is `/`,
/// `free_swap` the system's free swap space.
///
/// The crate `sysinfo` compares this group's usage with the limit of a group above, ignoring its other members, and
/// finds no limit if the group itself has none.
pub(super) fn limits(root: &Path, free_swap: u64) -> Vec<Limit> {
    let of_process = |name: &str| read_to_string(root.join("proc/self").join(name)).unwrap_or_default();
    let (groups, mounts) = (of_process("cgroup"), of_process("mountinfo"));
    let mut limits = Vec::new();
    for line in groups.lines() {
        // A line holds the hierarchy's number, its controllers, and the group.
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let files = match controllers {
            "" if number == "0" => V2,
            _ if controllers.split(',').any(|controller| controller == "memory") => V1,
            _ => continue,
        };
        let Some((top, folder)) = mounts.lines().find_map(|mount| files.folder(mount, group)) else { continue };
        let (top, folder) = (below(root, &top), below(root, &folder));
        let folders = folder.ancestors().take_while(|folder| folder.starts_with(&top));
        limits.extend(folders.filter_map(|folder| files.limit(folder, free_swap)));
    }
    limits
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

impl Files {
    /// Returns the folders of a mount and of a group, if the mount holds memory groups of this version. A container's
    /// group may lie outside the mount; the mount's top then counts.
    fn folder(&self, mount: &str, group: &str) -> Option<(PathBuf, PathBuf)> {
        let (place, system) = mount.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (top, at) = (place.next()?, Path::new(place.next()?));
        let mut system = system.split(' ');
        let of_version = system.next() == Some(self.system);
        let has_memory = self.system == V2.system || system.nth(1)?.split(',').any(|option| option == "memory");
        let inside = Path::new(group).strip_prefix(top).unwrap_or(Path::new(""));
        (of_version && has_memory).then(|| (at.into(), at.join(inside)))
    }

    fn limit(&self, folder: &Path, free_swap: u64) -> Option<Limit> {
        let number = |name: &str| read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        // `max` does not parse: no limit.
        let total = number(self.limit)?;
        let counts = read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let counts = counts.lines().filter_map(|line| line.split_once(' '));
        let held =
            counts.filter(|(name, _)| self.held.contains(name)).filter_map(|(_, n)| n.trim().parse::<u64>().ok());
        let swap = number("memory.swap.max").map(|most| {
            let used = number("memory.swap.current").unwrap_or(0);
            most.saturating_sub(used)
        });
        let swap = swap.unwrap_or(free_swap).min(free_swap);
        Some(Limit { total, left: total.saturating_sub(held.sum()).saturating_add(swap) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the limits, as (total, left), for files of these contents.
    fn found(files: &[(&str, &str)]) -> Vec<(u64, u64)> {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        limits(root.path(), 50).into_iter().map(|limit| (limit.total, limit.left)).collect()
    }

    const MOUNT_2: (&str, &str) = (
        "proc/self/mountinfo",
        "25 1 0:22 / /proc rw - proc proc rw\n30 23 0:25 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
    );
    const MOUNT_1: (&str, &str) = (
        "proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    );

    #[test]
    fn a_limit_of_version_2() {
        let group = ("proc/self/cgroup", "0::/app\n");
        let limit = ("sys/fs/cgroup/app/memory.max", "1000\n");
        let held = ("sys/fs/cgroup/app/memory.stat", "anon 300\nfile 600\nshmem 100\n");
        // The page cache can be reclaimed.
        assert_eq!(found(&[group, MOUNT_2, limit, held]), [(1000, 650)]);
        let swap = [("sys/fs/cgroup/app/memory.swap.max", "30\n"), ("sys/fs/cgroup/app/memory.swap.current", "20\n")];
        assert_eq!(found(&[group, MOUNT_2, limit, held, swap[0], swap[1]]), [(1000, 610)]);
        // Usage exceeds the limit, which was lowered since.
        let full = ("sys/fs/cgroup/app/memory.stat", "anon 1200\n");
        assert_eq!(found(&[group, MOUNT_2, limit, full, swap[0], swap[1]]), [(1000, 10)]);
    }

    #[test]
    fn max_is_no_limit() {
        let group = ("proc/self/cgroup", "0::/app\n");
        assert_eq!(found(&[group, MOUNT_2, ("sys/fs/cgroup/app/memory.max", "max\n")]), []);
        assert_eq!(found(&[group, MOUNT_2]), []);
        assert_eq!(found(&[group]), []);
        assert_eq!(found(&[]), []);
    }

    /// Every limit of nested groups counts, with the usage of all groups below it.
    #[test]
    fn nested_groups() {
        let files = [
            ("proc/self/cgroup", "0::/user/session/app\n"),
            MOUNT_2,
            ("sys/fs/cgroup/user/memory.max", "1000\n"),
            ("sys/fs/cgroup/user/memory.stat", "anon 900\n"),
            ("sys/fs/cgroup/user/session/memory.max", "max\n"),
            ("sys/fs/cgroup/user/session/app/memory.max", "800\n"),
            ("sys/fs/cgroup/user/session/app/memory.stat", "anon 100\n"),
        ];
        assert_eq!(found(&files), [(800, 750), (1000, 150)]);
        // The innermost group has no memory controller.
        assert_eq!(found(&files[..5]), [(1000, 150)]);
    }

    #[test]
    fn a_limit_of_version_1() {
        let files = [
            ("proc/self/cgroup", "9:cpu,cpuacct:/other\n4:memory:/app\n0::/\n"),
            MOUNT_1,
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/app/memory.stat", "rss 1\ntotal_rss 200\ntotal_cache 700\ntotal_shmem 100\n"),
            ("sys/fs/cgroup/cpu/other/memory.limit_in_bytes", "5\n"),
        ];
        assert_eq!(found(&files), [(1000, 750), (9223372036854771712, 9223372036854771762)]);
    }

    /// A container sees its own group at the top of the mount.
    #[test]
    fn containers() {
        let limit = [("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n")];
        let mount = |top: &str| format!("35 31 0:32 {top} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
        for (group, top) in [("/docker/a", "/docker/a"), ("/pod/b", "/docker/a"), ("/docker/a/b", "/docker/a")] {
            let group = format!("4:memory:{group}\n");
            let files = [("proc/self/cgroup", &*group), ("proc/self/mountinfo", &*mount(top)), limit[0]];
            assert_eq!(found(&files), [(1000, 1050)], "{group}");
        }
    }
}
