//! What a browser, a rebound name or a confused proxy could have made of a request is refused before anything else looks
//! at it. Pure: a request's head in, a refusal or nothing out.
//!
//! Invariant: no page of another origin can have a request carried out, whatever credential the browser holds. On TCP
//! `Host` must name us and `Origin`, where there is one, must be exactly ours; bodies are JSON, which no form sends.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Version};

use crate::error::Refused;
use crate::limits::BODY_BYTES_MAX;
use crate::query;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const HTTP_PORT: u16 = 80;

/// Where a connection came in.
#[derive(Debug, Clone)]
pub(crate) enum Site {
    /// The home's Unix socket, which no browser reaches.
    Unix,
    /// A TCP port.
    Tcp {
        /// Our end of the connection.
        local: SocketAddr,
        /// Names of the configuration, without ports, in lower case.
        names: Arc<[String]>,
    },
}

/// Checks a request's head.
pub(crate) fn check(head: &Parts, site: &Site) -> Result<(), Refused> {
    if head.uri.query().is_some_and(query::holds_token) {
        return Err(Refused::TokenInQuery);
    }
    match site {
        // No page can reach it, so whoever sends an Origin is a proxy that would let pages in.
        Site::Unix if head.headers.contains_key(ORIGIN) => return Err(Refused::Origin),
        Site::Unix => {}
        Site::Tcp { local, names } => check_host(head, *local, names)?,
    }
    for value in head.headers.get_all(SEC_FETCH_SITE) {
        if !matches!(value.as_bytes(), b"same-origin" | b"none") {
            return Err(Refused::Origin);
        }
    }
    check_body(&head.headers)
}

fn check_host(head: &Parts, local: SocketAddr, names: &[String]) -> Result<(), Refused> {
    let host = match single(&head.headers, &HOST) {
        Some(host) if !head.headers.get_all(HOST).iter().skip(1).any(|_| true) => host,
        None if head.headers.contains_key(HOST) => return Err(Refused::Host),
        None if head.version == Version::HTTP_10 => {
            return Err(Refused::BadRequest("send a Host header"));
        }
        None => return Err(Refused::BadRequest("a request needs a Host header")),
        Some(_) => {
            return Err(Refused::BadRequest(
                "a request has one Host header, not two",
            ));
        }
    };
    if let Some(authority) = head.uri.authority()
        && !authority.as_str().eq_ignore_ascii_case(host)
    {
        return Err(Refused::BadRequest(
            "the request's target and its Host header name different places",
        ));
    }
    if !is_ours(host, local, names) {
        return Err(Refused::Host);
    }
    let mut origins = head.headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if is_origin_of(origin.as_bytes(), host) => Ok(()),
        _ => Err(Refused::Origin),
    }
}

/// The value of a header as text, of its first line.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether `host`, with its port, names this listener.
fn is_ours(host: &str, local: SocketAddr, names: &[String]) -> bool {
    let Some((name, port)) = split_port(host) else {
        return false;
    };
    if port != local.port() {
        return false;
    }
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let address: Option<IpAddr> = match bare {
        Some(v6) => v6.parse().ok().filter(IpAddr::is_ipv6),
        None => name.parse().ok().filter(IpAddr::is_ipv4),
    };
    match address {
        Some(address) => address.is_loopback() || address == local.ip().to_canonical(),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || names.iter().any(|known| known.eq_ignore_ascii_case(name))
        }
    }
}

/// A host and its port; without one, that of plain HTTP.
fn split_port(host: &str) -> Option<(&str, u16)> {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            // `parse` alone would take a sign.
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            Some((name, port.parse().ok().filter(|_| is_number)?))
        }
        _ => Some((host, HTTP_PORT)),
    }
}

fn is_origin_of(origin: &[u8], host: &str) -> bool {
    origin
        .strip_prefix(b"http://")
        .is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_bytes()))
}

fn check_body(headers: &HeaderMap) -> Result<(), Refused> {
    let length = single(headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(Refused::BodyTooLarge);
    }
    let has_body =
        headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length > 0);
    if !has_body {
        return Ok(());
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(kind), None)
            if kind.to_str().is_ok_and(is_json) && !headers.contains_key(CONTENT_ENCODING) =>
        {
            Ok(())
        }
        _ => Err(Refused::ContentType),
    }
}

fn is_json(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/json")
        && parts.all(|parameter| {
            let parameter = parameter.to_ascii_lowercase();
            matches!(
                parameter.as_str(),
                "" | "charset=utf-8" | "charset=\"utf-8\""
            )
        })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn site() -> Site {
        Site::Tcp {
            local: "127.0.0.1:7411".parse().unwrap(),
            names: ["build.lan".to_owned()].into(),
        }
    }

    /// The name of the refusal of a request, or `ok`.
    fn check_on(site: &Site, target: &str, headers: &[(&str, &str)]) -> &'static str {
        let mut request = Request::post(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&head, site).map_or_else(|refused| refused.slug(), |()| "ok")
    }

    fn host(host: &str) -> &'static str {
        check_on(&site(), "/v1/tasks", &[("host", host)])
    }

    fn with(headers: &[(&str, &str)]) -> &'static str {
        let mut all = vec![("host", "127.0.0.1:7411")];
        all.extend_from_slice(headers);
        check_on(&site(), "/v1/tasks", &all)
    }

    #[test]
    fn only_our_names_with_our_port_are_answered() {
        for good in [
            "127.0.0.1:7411",
            "localhost:7411",
            "LOCALHOST:7411",
            "[::1]:7411",
            "127.0.0.2:7411",
            "build.lan:7411",
        ] {
            assert_eq!(host(good), "ok", "{good}");
        }
        let bad = [
            "evil.example",
            "evil.example:7411",
            "127.0.0.1.evil.example:7411",
            "localhost.evil.example:7411",
            "127.0.0.1",
            "127.0.0.1:7412",
            "localhost:",
            "localhost:+7411",
            "user@localhost:7411",
            "192.168.1.2:7411",
            "[::1",
            "::1:7411",
            "[127.0.0.1]:7411",
            "localhost.:7411",
            "0.0.0.0:7411",
            "",
        ];
        for bad in bad {
            assert_eq!(host(bad), "host-refused", "{bad}");
        }
    }

    #[test]
    fn the_plain_port_may_be_left_out_where_it_is_ours() {
        let site = Site::Tcp {
            local: "10.0.0.7:80".parse().unwrap(),
            names: [].into(),
        };
        for good in ["localhost", "10.0.0.7", "10.0.0.7:80", "[::1]"] {
            assert_eq!(check_on(&site, "/", &[("host", good)]), "ok", "{good}");
        }
    }

    #[test]
    fn a_host_is_said_once_and_agrees_with_the_target() {
        assert_eq!(check_on(&site(), "/", &[]), "bad-request");
        assert_eq!(with(&[("host", "127.0.0.1:7411")]), "bad-request");
        assert_eq!(with(&[("host", "evil.example")]), "bad-request");
        let target = "http://evil.example/v1/tasks";
        assert_eq!(
            check_on(&site(), target, &[("host", "127.0.0.1:7411")]),
            "bad-request"
        );
        let target = "http://127.0.0.1:7411/v1/tasks";
        assert_eq!(
            check_on(&site(), target, &[("host", "127.0.0.1:7411")]),
            "ok"
        );
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        assert_eq!(with(&[("origin", "http://127.0.0.1:7411")]), "ok");
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost:7411",
            "https://127.0.0.1:7411",
            "http://127.0.0.1",
            "",
        ] {
            assert_eq!(with(&[("origin", origin)]), "origin-refused", "{origin}");
        }
        assert_eq!(
            with(&[("origin", "http://127.0.0.1:7411"), ("origin", "null")]),
            "origin-refused"
        );
        for (value, expected) in [
            ("same-origin", "ok"),
            ("none", "ok"),
            ("cross-site", "origin-refused"),
            ("same-site", "origin-refused"),
        ] {
            assert_eq!(with(&[("sec-fetch-site", value)]), expected);
        }
    }

    #[test]
    fn the_unix_socket_asks_for_no_host_and_takes_no_origin() {
        assert_eq!(check_on(&Site::Unix, "/", &[]), "ok");
        assert_eq!(check_on(&Site::Unix, "/", &[("host", "anything")]), "ok");
        assert_eq!(
            check_on(&Site::Unix, "/", &[("origin", "http://localhost")]),
            "origin-refused"
        );
        assert_eq!(
            check_on(&Site::Unix, "/", &[("sec-fetch-site", "cross-site")]),
            "origin-refused"
        );
    }

    #[test]
    fn bodies_are_json_and_bounded() {
        let typed = |kind| with(&[("content-length", "2"), ("content-type", kind)]);
        for kind in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;",
        ] {
            assert_eq!(typed(kind), "ok", "{kind}");
        }
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/jsonx",
            "",
        ] {
            assert_eq!(typed(kind), "content-type", "{kind}");
        }
        assert_eq!(with(&[("content-length", "2")]), "content-type");
        assert_eq!(with(&[("transfer-encoding", "chunked")]), "content-type");
        assert_eq!(with(&[("content-length", "0")]), "ok");
        assert_eq!(
            with(&[
                ("content-length", "4194305"),
                ("content-type", "application/json")
            ]),
            "body-too-large"
        );
        let zipped = [
            ("content-length", "2"),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ];
        assert_eq!(with(&zipped), "content-type");
    }

    #[test]
    fn a_token_in_the_query_is_refused_even_beside_a_good_header() {
        let headers = [("host", "127.0.0.1:7411"), ("authorization", "Bearer good")];
        assert_eq!(
            check_on(&site(), "/v1/events?topics=a&access_token=x", &headers),
            "token-in-query"
        );
    }
}
