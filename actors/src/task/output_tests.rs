use super::*;
use proptest::prelude::*;

const NAME: StreamName = StreamName::Output;

struct Stage {
    root: tempfile::TempDir,
    folder: Folder,
}

impl Stage {
    fn new(content: &[u8], ranges: Ranges) -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        std::fs::write(root.path().join("output"), content).unwrap();
        std::fs::write(root.path().join("kept"), ranges.to_bytes()).unwrap();
        Self { root, folder }
    }

    fn read(&self, from: u64, max: usize) -> Chunk {
        read(&self.folder, NAME, from, max, 0).unwrap()
    }
}

fn gap(mark: u64, gap_start: u64, gap_end: u64) -> Ranges {
    Ranges {
        mark,
        gap_start,
        gap_end,
    }
}

#[test]
fn bytes_below_the_mark_are_counted_and_not_shown() {
    let stage = Stage::new(b"\0\0\0\0efgh", gap(4, 0, 0));
    let chunk = stage.read(1, 100);
    assert_eq!(
        (chunk.bytes.as_slice(), chunk.offset, chunk.omitted),
        (&b"efgh"[..], 4, 3)
    );
    assert_eq!((chunk.next, chunk.total), (8, 8));
}

#[test]
fn a_gap_is_never_joined() {
    let stage = Stage::new(b"ab\0\0\0fg", gap(0, 2, 5));
    let first = stage.read(0, 100);
    assert_eq!((first.bytes.as_slice(), first.next), (&b"ab"[..], 2));
    let second = stage.read(first.next, 100);
    assert_eq!(
        (second.bytes.as_slice(), second.omitted, second.next),
        (&b"fg"[..], 3, 7)
    );
}

#[test]
fn a_gap_at_the_end_is_disclosed() {
    let stage = Stage::new(b"ab\0\0\0", gap(0, 2, 5));
    let chunk = stage.read(2, 100);
    assert_eq!(
        (chunk.bytes.len(), chunk.omitted, chunk.next, chunk.total),
        (0, 3, 5, 5)
    );
}

#[test]
fn what_somebody_cut_is_disclosed_when_the_size_is_known() {
    let stage = Stage::new(b"abc", Ranges::default());
    let chunk = read(&stage.folder, NAME, 1, 100, 18).unwrap();
    assert_eq!(
        (chunk.bytes.as_slice(), chunk.next, chunk.total),
        (&b"bc"[..], 3, 18)
    );
    let rest = read(&stage.folder, NAME, 3, 100, 18).unwrap();
    assert_eq!((rest.bytes.len(), rest.omitted, rest.next), (0, 15, 18));
    std::fs::remove_file(stage.root.path().join("output")).unwrap();
    let gone = read(&stage.folder, NAME, 0, 100, 18).unwrap();
    assert_eq!((gone.omitted, gone.next), (18, 18));
}

#[test]
fn a_link_in_the_stream_s_place_is_not_followed() {
    let stage = Stage::new(b"abc", Ranges::default());
    let path = stage.root.path().join("output");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert_eq!(stage.read(0, 100).bytes, b"");
}

#[test]
fn an_offset_past_the_end_gives_the_total_to_judge_by() {
    let stage = Stage::new(b"abc", Ranges::default());
    let chunk = stage.read(9, 100);
    assert_eq!(
        (chunk.bytes.len(), chunk.next, chunk.total, chunk.omitted),
        (0, 9, 3, 0)
    );
}

#[test]
fn a_partial_character_waits_unless_at_the_end() {
    assert_eq!(decode(b"a\xe2\x82", false), ("a".into(), 1));
    assert_eq!(decode(b"a\xe2\x82", true), ("a\u{fffd}".into(), 3));
    assert_eq!(decode(b"a\xe2\x82b", false), ("a\u{fffd}b".into(), 4));
    // The examples of the Unicode standard for maximal subparts.
    assert_eq!(
        decode(b"\xf0\x80\x80\x41", true).0,
        "\u{fffd}\u{fffd}\u{fffd}A"
    );
    assert_eq!(
        decode(b"\xf1\x80\x80\xe1\x80\xc2\x62", true).0,
        "\u{fffd}\u{fffd}\u{fffd}b"
    );
}

#[test]
fn a_text_read_gives_at_least_one_character() {
    let stage = Stage::new("€uro".as_bytes(), Ranges::default());
    let chunk = read_text(&stage.folder, NAME, 0, 1, 0, false).unwrap();
    assert!(chunk.text.starts_with('€'));
}

#[test]
fn a_tail_begins_at_a_character_and_behind_a_gap() {
    let stage = Stage::new("a€b".as_bytes(), Ranges::default());
    let tail = tail_text(&stage.folder, NAME, 3, 0, true).unwrap();
    assert_eq!((tail.text.as_str(), tail.offset), ("b", 4));
    let stage = Stage::new(b"abc\0\0f", gap(0, 3, 5));
    let tail = tail_text(&stage.folder, NAME, 6, 0, true).unwrap();
    assert_eq!((tail.text.as_str(), tail.offset), ("f", 5));
}

#[test]
fn last_lines_count_an_unfinished_one() {
    for (content, lines, offset) in [
        (&b"a\nb\nc\n"[..], 1, 4),
        (b"a\nb\nc\n", 2, 2),
        (b"a\nb\nc", 1, 4),
        (b"a\nb\nc", 9, 0),
        (b"", 3, 0),
        (b"\n\n\n", 2, 1),
    ] {
        let stage = Stage::new(content, Ranges::default());
        let found = last_lines(&stage.folder, NAME, lines, u64::MAX, 0).unwrap();
        assert_eq!(found, offset, "{lines} of {content:?}");
    }
}

proptest! {
    #[test]
    fn text_read_in_any_pieces_is_the_same_text(bytes in proptest::collection::vec(any::<u8>(), 0..200), max in 1..20_usize) {
        let stage = Stage::new(&bytes, Ranges::default());
        let mut text = String::new();
        let mut next = 0;
        while next < bytes.len() as u64 {
            let chunk = read_text(&stage.folder, NAME, next, max, 0, true).unwrap();
            prop_assert!(chunk.next > next, "no progress at {next}");
            text.push_str(&chunk.text);
            next = chunk.next;
        }
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn decode_agrees_with_the_standard_at_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let (text, used) = decode(&bytes, true);
        prop_assert_eq!(used, bytes.len());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn text_keeps_to_its_bound_but_for_one_long_character() {
    let stage = Stage::new("ab→c".as_bytes(), Ranges::default());
    let text = |from, max| {
        let chunk = read_text(&stage.folder, NAME, from, max, 0, true).unwrap();
        (chunk.text, chunk.next)
    };
    assert_eq!(text(0, 1), ("a".to_owned(), 1));
    assert_eq!(text(0, 3), ("ab".to_owned(), 2));
    assert_eq!(text(2, 1), ("→".to_owned(), 5));
    assert_eq!(text(5, 1), ("c".to_owned(), 6));
}
