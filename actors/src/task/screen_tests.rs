use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// A task's folder with this output, whose terminal began at 20x5 and then had these sizes from these offsets.
fn folder(dir: &Path, output: &[u8], sizes: &[(u64, (u16, u16))]) -> Folder {
    let path = dir.join("t-1");
    let folder = Folder::create(&path).unwrap();
    std::fs::write(path.join("output"), output).unwrap();
    let mut events = std::fs::File::create(path.join(EVENTS)).unwrap();
    writeln!(
        events,
        r#"{{"seq":1,"at":0,"event":"started","data":{{"pid":1,"size":[20,5]}}}}"#
    )
    .unwrap();
    writeln!(events, "not one of ours").unwrap();
    for (offset, (cols, rows)) in sizes {
        writeln!(
            events,
            r#"{{"event":"resize","data":{{"size":[{cols},{rows}],"offset":{offset}}}}}"#
        )
        .unwrap();
    }
    folder
}

fn shown(output: &[u8], sizes: &[(u64, (u16, u16))]) -> View {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(dir.path(), output, sizes);
    let mut screen = Screen::open(&folder).unwrap();
    screen.catch_up(&folder, 0).unwrap();
    assert_eq!(screen.offset(), output.len() as u64);
    screen.view()
}

fn row(view: &View, row: usize) -> &str {
    view.rows[row].as_str()
}

#[test]
fn a_screen_is_what_the_program_drew() {
    let view = shown(b"\x1b]2;the\x07 title\x1b[2J\x1b[3;5Hhere\x1b[?25l", &[]);
    assert_eq!(view.size, (20, 5));
    assert_eq!(view.rows.len(), 5);
    assert_eq!(row(&view, 2), "    here");
    assert_eq!((view.cursor, view.is_cursor_visible), ((2, 8), false));
    assert_eq!(view.title.as_deref(), Some("the"));
    assert!(!view.is_alternate);
}

#[test]
fn the_alternate_screen_covers_the_other_and_gives_it_back() {
    let view = shown(b"shell\x1b[?1049h\x1b[HEDITOR", &[]);
    assert!(view.is_alternate);
    assert_eq!(row(&view, 0), "EDITOR");
    let view = shown(b"shell\x1b[?1049h\x1b[HEDITOR\x1b[?1049l", &[]);
    assert!(!view.is_alternate);
    assert_eq!(row(&view, 0), "shell");
}

#[test]
fn a_size_holds_from_its_place_in_the_output_on() {
    // Of the same thirty letters some came before the terminal was narrow.
    let view = shown(&[b'x'; 30], &[(0, (30, 4)), (15, (10, 3))]);
    assert_eq!(view.size, (10, 3));
    let narrow = shown(&[b'x'; 30], &[(0, (10, 3))]);
    assert_eq!(row(&narrow, 2), "xxxxxxxxxx");
    assert_ne!(view.rows, narrow.rows);
    // A size after the last byte counts, and one that no terminal has does not.
    assert_eq!(
        shown(b"x", &[(1, (33, 7)), (1, (0, 9)), (1, (9999, 9))]).size,
        (33, 7)
    );
}

#[test]
fn a_half_written_line_of_sizes_waits_for_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(dir.path(), b"x", &[]);
    let mut screen = Screen::open(&folder).unwrap();
    let path = dir.path().join("t-1").join(EVENTS);
    let mut events = std::fs::File::options().append(true).open(path).unwrap();
    write!(events, r#"{{"event":"resize","data":{{"size":[40,"#).unwrap();
    screen.catch_up(&folder, 0).unwrap();
    assert_eq!(screen.view().size, (20, 5));
    writeln!(events, r#"9],"offset":1}}}}"#).unwrap();
    screen.catch_up(&folder, 0).unwrap();
    assert_eq!(screen.view().size, (40, 9));
}

#[test]
fn a_screen_that_was_sent_to_a_terminal_looks_the_same_there() {
    let dir = tempfile::tempdir().unwrap();
    let output = "plain\r\n\x1b[1;31mred\x1b[m 日本\x1b[5;1Hlast\x1b[2;3H\x1b[?2004h".as_bytes();
    let folder = folder(dir.path(), output, &[]);
    let mut screen = Screen::open(&folder).unwrap();
    screen.catch_up(&folder, 0).unwrap();
    let sent = screen.formatted();
    assert!(sent.contains("\x1b[?2004h"), "{sent:?}");
    assert_eq!(shown(sent.as_bytes(), &[]), screen.view());
}

#[test]
fn a_panic_of_the_model_is_an_error_from_then_on() {
    let mut screen = Screen::blank((80, 24));
    let said = screen
        .guarded(|_| panic!("as the model might"))
        .unwrap_err();
    assert!(said.to_string().contains("cannot be shown"), "{said}");
    assert!(screen.feed(b"x").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Bytes as they come, with escape sequences among them more often than by chance, on terminals of odd sizes.
    #[test]
    fn no_output_breaks_a_screen(
        parts in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                "\x1b\\[[0-9;?]{0,12}[@-~]".prop_map(String::into_bytes),
                "\x1b[()#%78=>DEHMNOZc][\\PC]?".prop_map(String::into_bytes),
                "\\PC{0,20}".prop_map(String::into_bytes),
                Just(b"\x1b[?1049h".to_vec()),
            ],
            0..60,
        ),
        sizes in proptest::collection::vec((0_u64..800, 1_u16..60, 1_u16..30), 0..6),
    ) {
        let output = parts.concat();
        let mut sizes: Vec<_> = sizes.into_iter().map(|(at, cols, rows)| (at, (cols, rows))).collect();
        sizes.sort_unstable();
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path(), &output, &sizes);
        let mut screen = Screen::open(&folder).unwrap();
        // A panic of the model itself shows as this error, which is right; anything else is a bug here.
        if screen.catch_up(&folder, 0).is_ok() {
            let view = screen.view();
            prop_assert_eq!(view.rows.len(), usize::from(view.size.1));
            prop_assert!(view.cursor.0 < view.size.1 && view.cursor.1 <= view.size.0);
            prop_assert!(view.rows.iter().all(|row| !row.chars().any(char::is_control)));
            prop_assert!(!screen.formatted().is_empty());
        } else {
            prop_assert!(screen.is_broken);
        }
    }
}
