//! Words of the operating system in JSON: arguments, paths and environment need not be UTF-8.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// One word of the system in JSON: a string where it is UTF-8, else `{"base64": "…"}`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Bytes { base64: String },
}

impl From<OsString> for Word {
    fn from(word: OsString) -> Self {
        use base64::Engine as _;
        use std::os::unix::ffi::OsStringExt as _;
        word.into_string().map_or_else(
            |raw| Self::Bytes {
                base64: base64::prelude::BASE64_STANDARD.encode(raw.into_vec()),
            },
            Self::Text,
        )
    }
}

impl TryFrom<Word> for OsString {
    type Error = base64::DecodeError;

    fn try_from(word: Word) -> Result<Self, Self::Error> {
        use base64::Engine as _;
        use std::os::unix::ffi::OsStringExt as _;
        match word {
            Word::Text(text) => Ok(text.into()),
            Word::Bytes { base64 } => base64::prelude::BASE64_STANDARD
                .decode(base64)
                .map(Self::from_vec),
        }
    }
}

pub(super) mod os {
    use super::{OsString, Word};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::ffi::OsStr;

    pub(in super::super) fn serialize<T: AsRef<OsStr>, S: Serializer>(
        word: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        Word::from(word.as_ref().to_os_string()).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        OsString::try_from(Word::deserialize(from)?)
            .map(T::from)
            .map_err(D::Error::custom)
    }
}

pub(super) mod os_option {
    use super::{OsString, Word};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "the form that serde calls")]
    pub(in super::super) fn serialize<S: Serializer>(
        word: &Option<OsString>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        word.clone().map(Word::from).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<OsString>, D::Error> {
        Option::<Word>::deserialize(from)?
            .map(OsString::try_from)
            .transpose()
            .map_err(D::Error::custom)
    }
}

pub(super) mod os_list {
    use super::{OsString, Word};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        words: &[OsString],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(words.iter().cloned().map(Word::from))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<OsString>, D::Error> {
        Vec::<Word>::deserialize(from)?
            .into_iter()
            .map(|word| OsString::try_from(word).map_err(D::Error::custom))
            .collect()
    }
}

pub(super) mod os_pairs {
    use super::{OsString, Word};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        pairs: &[(OsString, OsString)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            pairs
                .iter()
                .cloned()
                .map(|(name, value)| (Word::from(name), Word::from(value))),
        )
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(OsString, OsString)>, D::Error> {
        Vec::<(Word, Word)>::deserialize(from)?
            .into_iter()
            .map(|(name, value)| Ok((name.try_into()?, value.try_into()?)))
            .collect::<Result<_, base64::DecodeError>>()
            .map_err(D::Error::custom)
    }
}
