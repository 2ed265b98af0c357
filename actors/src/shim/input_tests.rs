use proptest::prelude::*;

use super::*;

fn line_mode() -> LineMode {
    let (ours, _theirs) = crate::sys::terminal::open((80, 24)).unwrap();
    LineMode::of(&rustix::termios::tcgetattr(&ours).unwrap())
        .expect("a new terminal is in line mode")
}

#[test]
fn a_line_that_the_kernel_would_cut_is_refused_across_writes() {
    let mode = line_mode();
    assert_eq!(mode.end_of_file, 4);
    let longest = vec![b'x'; TERMINAL_LINE_BYTES_MAX];
    assert_eq!(mode.measure(0, &longest), Ok(TERMINAL_LINE_BYTES_MAX));
    let refused = mode.measure(TERMINAL_LINE_BYTES_MAX, b"x").unwrap_err();
    assert!(refused.contains("4095 bytes"), "{refused}");
    for end in [b"\n", b"\r", b"\x04", b"\x03", b"\x15"] {
        assert_eq!(mode.measure(TERMINAL_LINE_BYTES_MAX, end), Ok(0), "{end:?}");
    }
}

#[test]
fn what_is_written_to_a_pipe_arrives_in_order_and_then_ends() {
    let (reader, sink) = rustix::pipe::pipe().unwrap();
    let mut input = Input::new(Some(sink), false);
    input.write(b"one ").unwrap();
    input.write(b"two").unwrap();
    input.close().unwrap();
    input.close().unwrap();
    assert_eq!(input.total(), 7);
    assert_eq!(input.write(b"x").unwrap_err(), "the task's input is closed");
    let mut buffer = [0; 16];
    let got = rustix::io::read(&reader, &mut buffer).unwrap();
    assert_eq!(&buffer[..got], b"one two");
    assert_eq!(rustix::io::read(&reader, &mut buffer), Ok(0));
}

#[test]
fn a_reader_that_is_gone_is_told_at_once() {
    let (reader, sink) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut input = Input::new(Some(sink), false);
    for _ in 0..2 {
        assert_eq!(
            input.write(b"x").unwrap_err(),
            "the task has closed its input"
        );
    }
    assert_eq!(input.total(), 0);
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let (reader, sink) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&sink, true).unwrap();
    let mut input = Input::new(Some(sink), false);
    let mut taken = 0;
    let block = vec![b'x'; 64 * 1024];
    let refused = loop {
        match input.write(&block) {
            Ok(()) => taken += block.len(),
            Err(refused) => break refused,
        }
    };
    assert!(refused.contains("write again later"), "{refused}");
    assert!(
        (INPUT_BYTES_MAX..INPUT_BYTES_MAX + 3 * block.len()).contains(&taken),
        "{taken}"
    );
    assert!(!input.is_ready_for(block.len()));
    let mut buffer = vec![0; 128 * 1024];
    let mut read = 0;
    while read < taken {
        read += rustix::io::read(&reader, &mut buffer).unwrap();
        input.push();
    }
    assert_eq!((read, input.total()), (taken, taken as u64));
    assert!(input.is_ready_for(block.len()));
}

proptest! {
    /// Cut as it may be, a text is measured like the whole, and an accepted one has no line that is too long.
    #[test]
    fn a_line_is_measured_the_same_however_it_is_cut(
        text in proptest::collection::vec(prop_oneof![9 => Just(b'x'), 1 => Just(b'\n')], 0..9000),
        cut in 0_usize..9000,
    ) {
        let mode = LineMode { ends: vec![b'\n'], end_of_file: 4 };
        let (first, second) = text.split_at(cut.min(text.len()));
        let parts = mode.measure(0, first).and_then(|line| mode.measure(line, second));
        let longest = text.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
        prop_assert_eq!(parts.is_ok(), longest <= TERMINAL_LINE_BYTES_MAX);
        prop_assert_eq!(parts, mode.measure(0, &text));
    }
}
