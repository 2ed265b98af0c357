//! Words as a person would write them in a shell.

/// Words as one line that a POSIX shell splits into the same words.
pub fn shell_quoted<T: AsRef<str>>(words: &[T]) -> String {
    let mut line = String::new();
    for word in words {
        let word = word.as_ref();
        if !line.is_empty() {
            line.push(' ');
        }
        let plain = !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte));
        if plain {
            line.push_str(word);
        } else {
            line.push('\'');
            line.push_str(&word.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_come_back_from_a_shell() {
        let words = [
            "printf",
            "[%s]\n",
            "a b",
            "",
            "it's",
            "say \"hi\"",
            "x\ny",
            "-n",
            "--",
            "$HOME",
            "*",
            "back\\slash",
            "é",
        ];
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(shell_quoted(&words))
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "[a b]\n[]\n[it's]\n[say \"hi\"]\n[x\ny]\n[-n]\n[--]\n[$HOME]\n[*]\n[back\\slash]\n[é]\n"
        );
    }
}
