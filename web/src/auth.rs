//! Who calls: a bearer token where there is one, else on the Unix socket the process at the other end.
//!
//! A credential that is shown decides alone: a bad token is refused on the Unix socket too, never passed over in favour
//! of the process that sent it.

use std::sync::PoisonError;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use weft_actors::caller::{Caller, Identity};
use weft_actors::check;
use weft_actors::house::{House, now_ms};
use weft_actors::sys::proc;
use weft_actors::task::row;
use weft_grants::limits::LEEWAY_SECS;
use weft_grants::{AccessClaims, Fault, GrantClaims, Refusal, Token, verify_access, verify_grant};

use crate::connection::Connection;
use crate::door::Door;
use crate::error::Refused;
use crate::guard::Site;

/// The header that names the owner session a call acts as.
pub(crate) const SESSION: &str = "weft-session";
/// The session of a caller on the Unix socket that names none and is no task.
const SESSION_DEFAULT: &str = "cli";
/// Looks at a line of ancestors that broke because one of them died meanwhile.
const LOOKS_MAX: usize = 8;

/// Who may post to a topic.
pub(crate) enum Poster {
    /// The bearer of a grant.
    Grant(GrantClaims),
    /// Anybody the actions know.
    Caller(Caller),
}

/// A caller, with the claims of its token where it has one.
pub(crate) struct Who {
    /// The caller.
    pub(crate) caller: Caller,
    /// Its token's claims.
    pub(crate) claims: Option<AccessClaims>,
}

/// The token a connection showed last. Programs show the same one with every request, and a signature costs more than
/// all the rest of a publish.
pub(crate) struct Known {
    token: Token,
    claims: Claims,
}

#[derive(Clone)]
enum Claims {
    Grant(GrantClaims),
    Access(AccessClaims),
}

impl Claims {
    fn expires(&self) -> u64 {
        match self {
            Claims::Grant(claims) => claims.exp,
            Claims::Access(claims) => claims.exp,
        }
    }
}

/// Who calls, for every route but the post to a topic. A grant is refused here: it is for its one route.
pub(crate) async fn who(
    door: &Door,
    connection: &Connection,
    headers: &HeaderMap,
) -> Result<Who, Refused> {
    let Some(token) = bearer(headers)? else {
        let caller = process(door, connection, headers).await?;
        return Ok(Who {
            caller,
            claims: None,
        });
    };
    if let Some(Claims::Access(claims)) = known(connection, token)? {
        return admit(door, headers, claims).await;
    }
    let claims = verify_access(
        token,
        &door.house.keys(),
        &door.audience,
        &door.issuer,
        now_secs(),
    )?;
    remember(connection, token, Claims::Access(claims.clone()));
    admit(door, headers, claims).await
}

/// Who posts to a topic: the bearer of a grant, or anybody the actions know.
pub(crate) async fn poster(
    door: &Door,
    connection: &Connection,
    headers: &HeaderMap,
) -> Result<Poster, Refused> {
    let caller = async || {
        who(door, connection, headers)
            .await
            .map(|who| Poster::Caller(who.caller))
    };
    let Some(token) = bearer(headers)? else {
        return caller().await;
    };
    match known(connection, token)? {
        Some(Claims::Grant(claims)) => return Ok(Poster::Grant(claims)),
        Some(Claims::Access(_)) => return caller().await,
        None => {}
    }
    match verify_grant(
        token,
        &door.house.keys(),
        &door.audience,
        &door.issuer,
        now_secs(),
    ) {
        Ok(claims) => {
            remember(connection, token, Claims::Grant(claims.clone()));
            Ok(Poster::Grant(claims))
        }
        Err(Refusal::Malformed(Fault::Type(_))) => caller().await,
        Err(refusal) => Err(refusal.into()),
    }
}

/// The text of the bearer token, if one is shown.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    match (shown.next(), shown.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .ok()
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
            .map(|(_, token)| Some(token))
            .ok_or_else(|| {
                Refused::unauthorized("send the token as `Authorization: Bearer TOKEN`")
            }),
        (Some(_), Some(_)) => Err(Refused::unauthorized(
            "send one Authorization header, not two",
        )),
    }
}

/// What the connection's last token says, if it is this one and still holds.
fn known(connection: &Connection, token: &str) -> Result<Option<Claims>, Refused> {
    let known = connection
        .known
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(known) = known.as_ref().filter(|known| known.token.expose() == token) else {
        return Ok(None);
    };
    if now_secs() >= known.claims.expires().saturating_add(LEEWAY_SECS) {
        return Err(Refusal::Expired.into());
    }
    Ok(Some(known.claims.clone()))
}

fn remember(connection: &Connection, token: &str, claims: Claims) {
    let known = Known {
        token: Token::new(token.to_owned()),
        claims,
    };
    *connection
        .known
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(known);
}

/// The caller that a verified token stands for, unless it was revoked.
async fn admit(door: &Door, headers: &HeaderMap, claims: AccessClaims) -> Result<Who, Refused> {
    let mut caller = weft_actors::tokens::check(&door.house, &claims).await?;
    if let Some(session) = session_named(headers)? {
        caller.session = caller.acting_as(Some(session))?;
    }
    Ok(Who {
        caller,
        claims: Some(claims),
    })
}

/// The process at the other end of the Unix socket.
async fn process(
    door: &Door,
    connection: &Connection,
    headers: &HeaderMap,
) -> Result<Caller, Refused> {
    if !matches!(connection.site, Site::Unix) {
        return Err(Refused::unauthorized(
            "this needs a token: `weft token create --scope …` makes one",
        ));
    }
    let named = session_named(headers)?.map(str::to_owned);
    let Some(id) = task_of(&door.house, connection)? else {
        return Ok(Caller::local(
            named.unwrap_or_else(|| SESSION_DEFAULT.to_owned()),
        ));
    };
    let session = match named {
        Some(session) => session,
        // Looked up each time: the task may have been adopted since.
        None => session_of(&door.house, id.clone()).await?,
    };
    Ok(Caller {
        identity: Identity::Task { id },
        session,
    })
}

fn session_named(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let mut named = headers.get_all(SESSION).iter();
    let value = match (named.next(), named.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value,
        // Whose inbox is settled must not hang on which of two is looked at.
        (Some(_), Some(_)) => return Err(Refused::invalid("Weft-Session", "given twice")),
    };
    let name = value
        .to_str()
        .map_err(|_| Refused::invalid("Weft-Session", "is not text"))?;
    check::name("Weft-Session", name)?;
    Ok(Some(name))
}

async fn session_of(house: &House, id: String) -> Result<String, Refused> {
    let row = house.look(move |sql| row::get(sql, &id)).await?;
    Ok(row.map_or_else(|| SESSION_DEFAULT.to_owned(), |row| row.session))
}

/// The task that the connection's process is part of. Looked for once a connection, and only where a task runs at all:
/// a process is born below a shim and stays below it.
fn task_of(house: &House, connection: &Connection) -> Result<Option<String>, Refused> {
    if let Some(found) = connection.task.get() {
        return Ok(found.clone());
    }
    let Some(pid) = connection.pid else {
        return Ok(None);
    };
    if house.live.is_empty() {
        return Ok(None);
    }
    let line = family(pid).ok_or(Refused::PeerGone)?;
    let found = line.into_iter().find_map(|pid| house.live.of_shim(pid));
    Ok(connection.task.get_or_init(|| found).clone())
}

/// A process and all its ancestors. A line that does not reach the first process broke because one of them died while it
/// was read: its child has another parent by then, so it is read again.
fn family(pid: u32) -> Option<Vec<u32>> {
    (0..LOOKS_MAX).find_map(|_| {
        let mut line = vec![pid];
        line.extend(proc::ancestors(pid));
        let is_whole = line
            .last()
            .and_then(|last| proc::stat_of(*last))
            .is_some_and(|stat| stat.parent == 0);
        is_whole.then_some(line)
    })
}

pub(crate) fn now_secs() -> u64 {
    now_ms() / 1000
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(values: &[&'static str]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        bearer(&headers)
            .map(|token| token.map(str::to_owned))
            .map_err(|refused| refused.slug())
    }

    #[test]
    fn one_bearer_token_is_taken_and_nothing_else() {
        assert_eq!(check(&[]), Ok(None));
        assert_eq!(check(&["Bearer a.b.c"]), Ok(Some("a.b.c".to_owned())));
        assert_eq!(check(&["bearer x"]), Ok(Some("x".to_owned())));
        for values in [
            &["Basic x"][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a", "Bearer a"],
            &["a.b.c"],
        ] {
            assert_eq!(check(values), Err("unauthorized"), "{values:?}");
        }
    }

    #[test]
    fn the_line_of_a_process_reaches_the_first_one() {
        let line = family(std::process::id()).unwrap();
        assert_eq!(line[0], std::process::id());
        assert!(line.len() > 1);
        assert!(family(u32::MAX).is_none());
    }
}
