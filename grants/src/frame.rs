//! The outside of a token: three parts, and a header that may say nothing but what we expect.
//!
//! Written out here because the usual libraries are lenient where we must not be: they follow the
//! header's `alg`, skip fields they do not know, and accept any `typ`.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::SIGNATURE_LENGTH;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    error::{Fault, Part},
    limits::TOKEN_BYTES_MAX,
};

/// The only algorithm there is.
pub(crate) const ALGORITHM: &str = "EdDSA";

/// A token taken apart; nothing in it is proved yet.
pub(crate) struct Frame<'a> {
    /// The bytes that the signature covers: header, dot, claims, still encoded.
    pub(crate) signed: &'a [u8],
    pub(crate) header: Vec<u8>,
    pub(crate) claims: Vec<u8>,
    pub(crate) signature: [u8; SIGNATURE_LENGTH],
}

/// The header, in the only form there is. Doubled and unknown fields are errors of the parser.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    #[serde(borrow)]
    typ: Cow<'a, str>,
    #[serde(borrow)]
    kid: Cow<'a, str>,
}

impl<'a> Frame<'a> {
    /// Takes a token apart without believing any of it.
    pub(crate) fn split(token: &'a str) -> Result<Self, Fault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Fault::Parts)?;
        let (header, claims) = signed.split_once('.').ok_or(Fault::Parts)?;
        if claims.contains('.') {
            return Err(Fault::Parts);
        }
        Ok(Self {
            signed: signed.as_bytes(),
            header: decode(header, Part::Header)?,
            claims: decode(claims, Part::Claims)?,
            signature: decode(signature, Part::Signature)?
                .try_into()
                .map_err(|_| Fault::SignatureLength)?,
        })
    }

    /// The id of the key that is said to have signed, once the header is exactly what it must be
    /// for a token of type `typ`. This is all that is read before the signature holds.
    pub(crate) fn key_id(&self, typ: &'static str) -> Result<Cow<'_, str>, Fault> {
        let header: Header<'_> = object(&self.header).ok_or(Fault::Header)?;
        if header.alg != ALGORITHM {
            return Err(Fault::Algorithm);
        }
        if header.typ != typ {
            return Err(Fault::Type(typ));
        }
        Ok(header.kid)
    }

    /// The claims, to be asked for only when the signature holds.
    pub(crate) fn claims<C: DeserializeOwned>(&self, what: &'static str) -> Result<C, Fault> {
        object(&self.claims).ok_or(Fault::Claims(what))
    }
}

/// The engine refuses padding and stray bits in the last character, so that every part has one
/// spelling only and no changed byte can go unseen.
fn decode(text: &str, part: Part) -> Result<Vec<u8>, Fault> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| Fault::Encoding(part))
}

/// A JSON object as a struct. Serde would also take a struct from an array of its values in order,
/// which has no field names that could be checked.
fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    if json.first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYP: &str = "weft-grant+jwt";

    fn key_id(header: &str) -> Result<String, Fault> {
        let token = format!(
            "{}.e30.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode([0; 64])
        );
        Frame::split(&token)?.key_id(TYP).map(Cow::into_owned)
    }

    #[test]
    fn the_one_header_passes_in_any_order() {
        let kid = Ok("k".to_owned());
        assert_eq!(
            key_id(r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":"k"}"#),
            kid
        );
        assert_eq!(
            key_id(r#"{"kid":"k","typ":"weft-grant+jwt","alg":"EdDSA"}"#),
            kid
        );
    }

    #[test]
    fn any_other_header_is_refused() {
        let cases = [
            r#"["EdDSA","weft-grant+jwt","k"]"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt"}"#,
            r#"{"alg":"EdDSA","kid":"k"}"#,
            r#"{"typ":"weft-grant+jwt","kid":"k"}"#,
            r#"{"alg":"EdDSA","alg":"EdDSA","typ":"weft-grant+jwt","kid":"k"}"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":"k","k\u0069d":"k"}"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":"k","x":1}"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":"k","cty":null}"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":null}"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":["k"]}"#,
            r#"{"alg":"EdDSA","typ":"weft-grant+jwt","kid":"k"} x"#,
            r#" {"alg":"EdDSA","typ":"weft-grant+jwt","kid":"k"}"#,
            "\u{feff}{}",
            "",
            "{}",
            "null",
        ];
        for case in cases {
            assert_eq!(key_id(case), Err(Fault::Header), "{case}");
        }
    }

    #[test]
    fn the_header_does_not_choose_how_it_is_checked() {
        for alg in [
            "none", "None", "nOnE", "HS256", "eddsa", "Ed25519", "ES256", "",
        ] {
            let header = format!(r#"{{"alg":"{alg}","typ":"{TYP}","kid":"k"}}"#);
            assert_eq!(key_id(&header), Err(Fault::Algorithm), "{alg}");
        }
        for typ in [
            "JWT",
            "at+jwt",
            "Weft-Grant+JWT",
            "application/weft-grant+jwt",
            "",
        ] {
            let header = format!(r#"{{"alg":"EdDSA","typ":"{typ}","kid":"k"}}"#);
            assert_eq!(key_id(&header), Err(Fault::Type(TYP)), "{typ}");
        }
    }

    #[test]
    fn only_three_parts_in_canonical_base64url() {
        let signature = URL_SAFE_NO_PAD.encode([0; 64]);
        let split = |token: &str| Frame::split(token).err();
        assert_eq!(split(&format!("e30.e30.{signature}")), None);
        for token in [
            "",
            ".",
            "e30",
            "e30.e30",
            "e30.e30.e30.e30",
            "...",
            "e30.e30..",
        ] {
            assert!(split(token).is_some(), "{token}");
        }
        let encoding = |part| Some(Fault::Encoding(part));
        assert_eq!(
            split(&format!("e30=.e30.{signature}")),
            encoding(Part::Header)
        );
        assert_eq!(
            split(&format!("e31.e30.{signature}")),
            encoding(Part::Header)
        );
        assert_eq!(
            split(&format!("e30.e3+0.{signature}")),
            encoding(Part::Claims)
        );
        assert_eq!(
            split(&format!("e30.e30.{signature}==")),
            encoding(Part::Signature)
        );
        assert_eq!(
            split(&format!("e30.e30.{signature}\n")),
            encoding(Part::Signature)
        );
        assert_eq!(split("e30.e30."), Some(Fault::SignatureLength));
        assert_eq!(split("e30.e30.AAAA"), Some(Fault::SignatureLength));
        let long = "A".repeat(TOKEN_BYTES_MAX + 1);
        assert_eq!(split(&long), Some(Fault::TooLong));
        assert_eq!(split(&long[1..]), Some(Fault::Parts));
    }
}
