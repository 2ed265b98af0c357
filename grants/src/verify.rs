//! A token and the keys in, its claims or a refusal out.

use ed25519_dalek::Signature;

use crate::{
    claims::{AccessClaims, GrantClaims},
    error::{Fault, Refusal},
    frame::Frame,
    keys::Keys,
    limits::{GRANT_USES, LEEWAY_SECS},
    mint::{ACCESS_TYP, GRANT_TYP},
};

/// Checks a grant: its form, its signature, that it is for the mesh `aud` and from the node `iss`,
/// and its time against `now_secs`, seconds since 1970. Uses and revocation are the mesh's to check.
///
/// # Errors
/// [`Refusal`], whose text never holds any of the token's.
pub fn verify_grant(
    token: &str,
    keys: &Keys,
    aud: &str,
    iss: &str,
    now_secs: u64,
) -> Result<GrantClaims, Refusal> {
    let claims: GrantClaims = authentic(token, keys, GRANT_TYP)?.claims("grant")?;
    addressed((&claims.aud, aud), (&claims.iss, iss))?;
    if !GRANT_USES.contains(&claims.uses) {
        return Err(Fault::Uses.into());
    }
    in_time(claims.iat, claims.nbf, claims.exp, now_secs)?;
    Ok(claims)
}

/// Checks an access token: its form, its signature, that it is for `aud` and from the node `iss`,
/// that its scopes can be read, and its time against `now_secs`, seconds since 1970. Revocation is
/// the caller's to check, as is whether the scopes allow what is asked.
///
/// # Errors
/// [`Refusal`], whose text never holds any of the token's.
pub fn verify_access(
    token: &str,
    keys: &Keys,
    aud: &str,
    iss: &str,
    now_secs: u64,
) -> Result<AccessClaims, Refusal> {
    let claims: AccessClaims = authentic(token, keys, ACCESS_TYP)?.claims("API")?;
    addressed((&claims.aud, aud), (&claims.iss, iss))?;
    claims.scopes().map_err(|_| Fault::Scope)?;
    in_time(claims.iat, claims.nbf, claims.exp, now_secs)?;
    Ok(claims)
}

/// The token taken apart, once a key of ours has proved it. A key that is not known here and a
/// signature that does not hold are one answer: both say that it was not signed by us.
fn authentic<'a>(token: &'a str, keys: &Keys, typ: &'static str) -> Result<Frame<'a>, Refusal> {
    let frame = Frame::split(token)?;
    let key = keys.find(&frame.key_id(typ)?).ok_or(Refusal::Signature)?;
    // Strict, so that no second signature can be made out of a good one, nor one that holds for
    // any message under a weak key.
    key.verify_strict(frame.signed, &Signature::from_bytes(&frame.signature))
        .map_err(|_| Refusal::Signature)?;
    Ok(frame)
}

/// Whether audience and issuer, each as (said, ours), are exactly ours.
fn addressed(aud: (&str, &str), iss: (&str, &str)) -> Result<(), Fault> {
    if aud.0 != aud.1 {
        return Err(Fault::Audience);
    }
    if iss.0 != iss.1 {
        return Err(Fault::Issuer);
    }
    Ok(())
}

/// Whether `now` lies in the token's time, with the leeway at both ends. A token that was never
/// valid counts as expired, since waiting would not help.
fn in_time(iat: u64, nbf: Option<u64>, exp: u64, now: u64) -> Result<(), Refusal> {
    if now >= exp.saturating_add(LEEWAY_SECS) {
        return Err(Refusal::Expired);
    }
    if iat.max(nbf.unwrap_or(0)) > now.saturating_add(LEEWAY_SECS) {
        return Err(Refusal::Early);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_leeway_at_both_ends() {
        let at = |now| in_time(1000, None, 2000, now);
        assert_eq!(at(969), Err(Refusal::Early));
        assert_eq!(at(970), Ok(()));
        assert_eq!(at(2029), Ok(()));
        assert_eq!(at(2030), Err(Refusal::Expired));
    }

    #[test]
    fn not_before_counts_beside_the_time_of_minting() {
        assert_eq!(in_time(1000, Some(1500), 2000, 1469), Err(Refusal::Early));
        assert_eq!(in_time(1000, Some(1500), 2000, 1470), Ok(()));
        assert_eq!(in_time(1000, Some(5), 2000, 969), Err(Refusal::Early));
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        assert_eq!(in_time(0, None, u64::MAX, u64::MAX - 1), Ok(()));
        assert_eq!(in_time(u64::MAX, None, u64::MAX, 0), Err(Refusal::Early));
        assert_eq!(in_time(0, None, 0, u64::MAX), Err(Refusal::Expired));
    }
}
