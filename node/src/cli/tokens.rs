//! `token`: access for callers over TCP.

use clap::Subcommand;
use serde_json::{Value, json};
use weft_grants::limits::ACCESS_TTL_MS;

use super::given;
use crate::app::{App, block_on, say};
use crate::duration;
use crate::exit::{self, Failure};
use crate::render::{self, age, list, now_ms, plain, text, time};

/// The verbs of `token`.
#[derive(Debug, Subcommand)]
pub(super) enum Tokens {
    /// Make a token; it is shown once
    Create(Create),
    /// List tokens, never their text
    List,
    /// End a token
    Revoke {
        /// The token's id
        id: String,
    },
}

/// Options of `create`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  weft token create --scope mesh:read:builds --scope tasks:read --ttl 12h --name dashboard"
)]
pub(super) struct Create {
    /// What it allows: admin mesh:read[:PATTERN] mesh:publish[:PATTERN] tasks:read tasks:run
    #[arg(
        long = "scope",
        required = true,
        value_name = "SCOPE",
        value_delimiter = ','
    )]
    scopes: Vec<String>,
    /// How long it holds: 1m to 365d, 30d by default
    #[arg(long, value_name = "TIME", value_parser = duration::between(ACCESS_TTL_MS))]
    ttl: Option<u64>,
    /// What it is for
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Tokens {
    pub(super) fn perform(self, app: &App) -> Result<u8, Failure> {
        let mut client = app.client()?;
        match self {
            Tokens::Create(create) => {
                let input = given([
                    ("scopes", Some(create.scopes.into())),
                    ("ttlMs", create.ttl.map(Into::into)),
                    ("name", create.name.map(Into::into)),
                ]);
                let answer = block_on(client.change("tokens.create", input))?;
                app.answer(&answer, |answer| format!("{}\n", text(answer, "token")))?;
                app.tell(&format!(
                    "token {} may {} until {}; `weft token revoke {}` ends it",
                    text(&answer, "tokenId"),
                    text(&answer, "scope"),
                    time::utc(answer["expiresAt"].as_u64().unwrap_or(0)),
                    text(&answer, "tokenId")
                ));
                let runs_code: Vec<&str> = list(&answer, "runsCode")
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                if !runs_code.is_empty() {
                    say(&format!(
                        "whoever has this token can run code here: {}",
                        runs_code.join(" ")
                    ));
                }
            }
            Tokens::List => {
                let answer = block_on(client.read("tokens.list", json!({})))?;
                app.answer(&answer, |answer| table(list(answer, "tokens"), now_ms()))?;
                app.tell_if_none(list(&answer, "tokens"), "tokens");
            }
            Tokens::Revoke { id } => {
                let answer = block_on(client.change("tokens.revoke", json!({"tokenId": id})))?;
                app.answer(&answer, |_| String::new())?;
                app.tell(&format!("token {id} is revoked"));
            }
        }
        Ok(exit::DONE)
    }
}

fn table(tokens: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = tokens
        .iter()
        .map(|token| {
            vec![
                text(token, "tokenId").to_owned(),
                plain(&token["name"]),
                text(token, "scope").to_owned(),
                age(&token["createdAt"], now),
                render::validity(token, now),
            ]
        })
        .collect();
    render::table(&["TOKEN", "NAME", "SCOPE", "AGE", "LEFT"], &rows)
}
