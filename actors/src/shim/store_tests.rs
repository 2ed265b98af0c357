use super::*;
use crate::task::output::{self, Chunk};

const NAME: StreamName = StreamName::Output;

struct Stage {
    root: tempfile::TempDir,
    folder: Folder,
    kept: KeptFile,
    store: Store,
}

impl Stage {
    fn new(keep: u64) -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let kept = KeptFile::create(&folder).unwrap();
        let store = Store::create(&folder, NAME, keep, 0).unwrap();
        Self {
            root,
            folder,
            kept,
            store,
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.store.append(&self.folder, &mut self.kept, bytes, 0);
    }

    fn read(&self, from: u64) -> Chunk {
        output::read(&self.folder, NAME, from, 1 << 20, 0).unwrap()
    }

    fn log(&self) -> std::path::PathBuf {
        self.root.path().join("output")
    }
}

#[test]
fn a_log_cut_removed_renamed_or_replaced_goes_on_at_its_offset() {
    let changes: [fn(&Stage); 6] = [
        |stage| std::fs::write(stage.log(), "").unwrap(),
        |stage| std::fs::write(stage.log(), "ol").unwrap(),
        |stage| std::fs::remove_file(stage.log()).unwrap(),
        |stage| std::fs::rename(stage.log(), stage.root.path().join("output.1")).unwrap(),
        |stage| {
            std::fs::remove_file(stage.log()).unwrap();
            std::fs::write(stage.log(), "another's words, and many of them").unwrap();
        },
        |stage| {
            std::fs::remove_file(stage.log()).unwrap();
            std::os::unix::fs::symlink("/dev/null", stage.log()).unwrap();
        },
    ];
    for change in changes {
        let mut stage = Stage::new(1 << 20);
        stage.append(b"old-1\nold-2\nold-3\n");
        change(&stage);
        stage.append(b"new-1\n");
        let on = stage.read(18);
        assert_eq!(
            (on.bytes.as_slice(), on.omitted, on.next),
            (&b"new-1\n"[..], 0, 24)
        );
        let all = stage.read(0);
        assert_eq!((all.bytes.as_slice(), all.omitted), (&b"new-1\n"[..], 18));
    }
}

#[test]
fn words_behind_the_end_are_not_the_task_s() {
    let mut stage = Stage::new(1 << 20);
    stage.append(b"a");
    std::fs::write(stage.log(), "a, and words of somebody else").unwrap();
    stage.append(b"b");
    assert_eq!(stage.read(0).bytes, b"ab");
}

#[test]
fn a_window_is_kept_and_the_rest_takes_no_space() {
    let mut stage = Stage::new(64 * 1024);
    let mut all = Vec::new();
    for round in 0..100_u32 {
        let block: Vec<u8> = (0..10_000_u32)
            .map(|at| (at.wrapping_mul(31) + round) as u8 | 1)
            .collect();
        stage.append(&block);
        all.extend_from_slice(&block);
    }
    let chunk = stage.read(0);
    assert!(chunk.bytes.len() as u64 >= 64 * 1024);
    assert_eq!(chunk.omitted + chunk.bytes.len() as u64, 1_000_000);
    assert!(chunk.bytes == all[chunk.offset as usize..]);
    let blocks = std::fs::metadata(stage.log()).unwrap().blocks();
    assert!(blocks * 512 < 200_000, "{blocks}");
}

#[test]
fn without_punching_the_window_moves_to_a_new_file() {
    let mut stage = Stage::new(64 * 1024);
    stage.store.can_punch = false;
    for round in 0..100_u8 {
        stage.append(&[round | 1; 10_000]);
    }
    let chunk = stage.read(0);
    assert!(chunk.bytes.len() as u64 >= 64 * 1024);
    assert!(!chunk.bytes.contains(&0));
    assert_eq!(chunk.next, 1_000_000);
    assert!(std::fs::metadata(stage.log()).unwrap().blocks() * 512 < 200_000);
}

#[test]
fn below_the_floor_bytes_are_dropped_and_disclosed() {
    let mut stage = Stage::new(1 << 20);
    stage.append(b"kept");
    stage.store.space = Space::new(u64::MAX);
    stage.append(b"dropped");
    stage.store.space = Space::new(0);
    stage.append(b"again");
    assert_eq!(stage.read(0).bytes, b"kept");
    let rest = stage.read(4);
    assert_eq!((rest.bytes.as_slice(), rest.omitted), (&b"again"[..], 7));
}

#[test]
fn an_end_leaves_the_file_as_long_as_the_stream() {
    let mut stage = Stage::new(1 << 20);
    stage.append(b"old-1\n");
    std::fs::write(stage.log(), "").unwrap();
    stage.store.settle(&stage.folder, &mut stage.kept);
    let chunk = stage.read(0);
    assert_eq!((chunk.bytes.len(), chunk.omitted, chunk.total), (0, 6, 6));
}
