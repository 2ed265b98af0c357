//! `mesh post`: an event posted with a grant, over the home's socket or to a node elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use serde_json::Value;
use tokio::time::timeout;

use super::given;
use crate::app::{App, block_on, input};
use crate::config;
use crate::exit::{self, Failure};
use crate::http::body_of;
use crate::limits::{INPUT_BYTES_MAX, REMOTE_ANSWER_MS, SENDS_MAX, TOKEN_BYTES_MAX};
use crate::remote::Remote;
use crate::render::{plain, text, visible};

/// Options of `mesh post`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The token comes from --token-file, else from $WEFT_MESH_TOKEN; never from an argument, where others could see it.\n\nExamples:\n  weft mesh post --token-file grant.jwt --data '{\"passed\":true}'\n  weft mesh post --url https://weft.example.org --token-file - < grant.jwt"
)]
pub(crate) struct Post {
    /// The node's address, instead of the home's socket: https, or http on loopback
    #[arg(long, value_name = "URL", conflicts_with = "home")]
    url: Option<String>,
    /// The topic; the grant's where it is not given
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// The kind of event; the grant's where it is not given
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// JSON data
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// A file of JSON data, or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    data_file: Option<PathBuf>,
    /// A file with the token, or - for stdin
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Post {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let posted = self.post(app)?;
        app.answer(&posted, |posted| {
            visible(&format!(
                "{} on {} as {}, {} use(s) left",
                plain(&posted["sequence"]),
                text(posted, "topic"),
                text(posted, "id"),
                plain(&posted["usesLeft"])
            )) + "\n"
        })?;
        Ok(exit::DONE)
    }

    fn post(&self, app: &App) -> Result<Value, Failure> {
        let token = self.token()?;
        let claims = peek(&token);
        let topic = self
            .topic
            .clone()
            .or_else(|| claims["topic"].as_str().map(str::to_owned));
        let topic = topic.ok_or_else(|| {
            Failure::Usage(
                "this is no grant that names a topic; give --topic, or check the token".to_owned(),
            )
        })?;
        // The id makes a repeat of this post the same event. A completion grant has its own.
        let id = match claims["eid"].as_str() {
            Some(id) => id.to_owned(),
            None => crate::ids::ordered().map_err(|error| Failure::io("an event id", error))?,
        };
        let body = given([
            ("id", Some(id.into())),
            ("kind", self.kind.clone().map(Into::into)),
            ("data", self.data()?),
        ]);
        if let Some(url) = &self.url {
            return block_on(elsewhere(url, &topic, &token, &body));
        }
        let mut client = app.client_of_existing()?;
        block_on(client.post(&topic, &token, &body))
    }

    fn token(&self) -> Result<String, Failure> {
        let token = match &self.token_file {
            Some(file) => input(file, TOKEN_BYTES_MAX)?,
            None => config::mesh_token().ok_or_else(|| {
                Failure::Usage("no token: give --token-file or set WEFT_MESH_TOKEN".to_owned())
            })?,
        };
        Ok(token.trim().to_owned())
    }

    fn data(&self) -> Result<Option<Value>, Failure> {
        let text = match (&self.data, &self.data_file) {
            (Some(text), _) => text.clone(),
            (None, Some(file)) => input(file, INPUT_BYTES_MAX)?,
            (None, None) => return Ok(None),
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Failure::Usage(format!("the data is no JSON: {error}")))
    }
}

/// The claims of a token that nobody has checked: good for a default, never for a decision.
fn peek(token: &str) -> Value {
    token
        .split('.')
        .nth(1)
        .and_then(|payload| BASE64_URL_SAFE_NO_PAD.decode(payload).ok())
        .and_then(|payload| serde_json::from_slice(&payload).ok())
        .unwrap_or_default()
}

async fn elsewhere(url: &str, topic: &str, token: &str, body: &Value) -> Result<Value, Failure> {
    let remote = Remote::parse(url)?;
    let mut sends = 0;
    loop {
        sends += 1;
        let request = Request::post(format!("/v1/topics/{topic}/events"))
            .header(HOST, remote.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .body(Full::new(Bytes::from(body.to_string())))
            // Not the library's error: it could quote the token.
            .map_err(|_| {
                Failure::Usage(
                    "the topic or the token holds characters that no request can carry".to_owned(),
                )
            })?;
        let mut connection = remote.connect().await?;
        let answer = async {
            match connection.send(request).await {
                // Redirects are refusals like any other status: a token goes nowhere but where it was sent.
                Ok(response) => Some(body_of(response).await),
                Err(_) if sends < SENDS_MAX => None,
                // It never left this process.
                Err(error) if error.is_canceled() => Some(Err(Failure::Failed(format!(
                    "{url}: the connection was closed before the post was sent"
                )))),
                Err(error) => Some(Err(Failure::Cut(error.to_string()))),
            }
        };
        let bound = Duration::from_millis(REMOTE_ANSWER_MS);
        let answer = timeout(bound, answer).await.unwrap_or_else(|_elapsed| {
            Some(Err(Failure::Cut(format!(
                "no answer within {REMOTE_ANSWER_MS} ms"
            ))))
        });
        if let Some(body) = answer {
            return serde_json::from_slice(&body?)
                .map_err(|error| Failure::Protocol(error.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_gives_no_claims() {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(r#"{"topic":"builds"}"#);
        assert_eq!(peek(&format!("e30.{payload}.x"))["topic"], "builds");
        for token in ["", "a.b.c", "..", "e30.e30"] {
            assert!(peek(token)["topic"].is_null(), "{token}");
        }
    }
}
