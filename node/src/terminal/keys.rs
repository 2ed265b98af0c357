//! The keys that detach: how they are written, and how they are found among what is typed.

/// A sequence of keys, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DetachKeys(Vec<u8>);

/// Keys that detach, unless told otherwise.
pub(crate) const DEFAULT: &str = "ctrl-]";

/// Keys of one sequence at most: more nobody types by intent.
const KEYS_MAX: usize = 8;

/// Reads `ctrl-]` or `ctrl-p,ctrl-q`. For clap: the error is a sentence for a person.
pub(crate) fn parse(text: &str) -> Result<DetachKeys, String> {
    let refused = || {
        format!(
            "`{text}` names no keys; write up to {KEYS_MAX} of ctrl-a to ctrl-z, ctrl-@ [ \\ ] ^ _ or single letters, with commas between"
        )
    };
    let keys: Option<Vec<u8>> = text.split(',').map(key).collect();
    let keys = keys.ok_or_else(refused)?;
    if keys.len() > KEYS_MAX {
        return Err(refused());
    }
    Ok(DetachKeys(keys))
}

fn key(name: &str) -> Option<u8> {
    let single = |name: &str| match name.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Some(*byte),
        _ => None,
    };
    let lower = name.to_ascii_lowercase();
    match lower.strip_prefix("ctrl-") {
        Some(letter) => match single(letter)? {
            letter @ b'a'..=b'z' => Some(letter - b'a' + 1),
            letter @ (b'@' | b'['..=b'_') => Some(letter - b'@'),
            _ => None,
        },
        None => single(name),
    }
}

/// Looks for the sequence in what is typed.
#[derive(Debug)]
pub(crate) struct Scanner {
    keys: DetachKeys,
    /// How many of the keys were typed last, and are held back.
    matched: usize,
}

/// What came of some typed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    /// What goes to the task.
    pub(crate) bytes: Vec<u8>,
    /// The whole sequence was typed; what came behind it is nobody's.
    pub(crate) is_detach: bool,
}

impl Scanner {
    pub(crate) fn new(keys: DetachKeys) -> Self {
        Scanner { keys, matched: 0 }
    }

    /// Takes what was typed. The beginning of a sequence is held back until it is one, or is none.
    pub(crate) fn take(&mut self, typed: &[u8]) -> Typed {
        let mut bytes = Vec::with_capacity(typed.len());
        for byte in typed {
            while self.matched > 0 && self.keys.0[self.matched] != *byte {
                self.let_go(&mut bytes);
            }
            if self.keys.0[self.matched] == *byte {
                self.matched += 1;
            } else {
                bytes.push(*byte);
            }
            if self.matched == self.keys.0.len() {
                self.matched = 0;
                return Typed {
                    bytes,
                    is_detach: true,
                };
            }
        }
        Typed {
            bytes,
            is_detach: false,
        }
    }

    /// Gives up the longest start that cannot be one any more: what is left held back is again a start of the sequence.
    fn let_go(&mut self, bytes: &mut Vec<u8>) {
        let held = &self.keys.0[..self.matched];
        let gone = (1..=held.len())
            .find(|gone| held[*gone..] == held[..held.len() - gone])
            .unwrap_or(held.len());
        bytes.extend_from_slice(&held[..gone]);
        self.matched -= gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &str, typed: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut scanner = Scanner::new(parse(keys).unwrap());
        let mut bytes = Vec::new();
        for part in typed {
            let typed = scanner.take(part);
            bytes.extend(typed.bytes);
            if typed.is_detach {
                return (bytes, true);
            }
        }
        (bytes, false)
    }

    #[test]
    fn keys_are_read_as_people_write_them() {
        assert_eq!(parse(DEFAULT), Ok(DetachKeys(vec![0x1d])));
        assert_eq!(parse("Ctrl-P,ctrl-q"), Ok(DetachKeys(vec![16, 17])));
        assert_eq!(parse("ctrl-a,d"), Ok(DetachKeys(vec![1, b'd'])));
        assert_eq!(parse("ctrl-@"), Ok(DetachKeys(vec![0])));
        for bad in [
            "",
            ",",
            "ctrl-",
            "ctrl-1",
            "esc",
            "ä",
            "ctrl-aa",
            "a,,b",
            "a,a,a,a,a,a,a,a,a",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_but_the_sequence_goes_to_the_task() {
        assert_eq!(
            all("ctrl-]", &[b"ls\r", b"\x1dlost"]),
            (b"ls\r".to_vec(), true)
        );
        assert_eq!(
            all("ctrl-p,ctrl-q", &[b"a\x10", b"b"]),
            (b"a\x10b".to_vec(), false)
        );
        assert_eq!(
            all("ctrl-p,ctrl-q", &[b"a\x10", b"\x11"]),
            (b"a".to_vec(), true)
        );
        assert_eq!(all("a,a,b", &[b"aaab"]), (b"a".to_vec(), true));
        assert_eq!(all("a,b,a,c", &[b"ababac"]), (b"ab".to_vec(), true));
        assert_eq!(all("a,a,b", &[b"aac"]), (b"aac".to_vec(), false));
    }
}
