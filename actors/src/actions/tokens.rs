//! `tokens.create`, `tokens.list`, `tokens.revoke`: who may call over TCP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::limits::{ACCESS_TTL_MS, ACCESS_TTL_MS_DEFAULT};
use weft_grants::{AccessClaims, Right, Scope, Scopes, mint_access};

use crate::action::{Ctx, Verb};
use crate::caller::Identity;
use crate::check;
use crate::error::{Error, Result};
use crate::house::{now_ms, random_id};
use crate::limits::{LABEL_CHARS_MAX, TASK_ID_CHARS};
use crate::requests::RequestKey;
use crate::tokens::{self, TokenRow};

/// Makes a token.
pub(crate) struct Create;

/// What it may do.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateInput {
    /// Scopes such as `mesh:read:builds.*` or `tasks:run`.
    scopes: Vec<String>,
    /// A minute to a year, milliseconds; 30 days unless given.
    #[serde(default)]
    ttl_ms: Option<u64>,
    /// A person's name for it.
    #[serde(default)]
    name: Option<String>,
    /// The same id again gets the same token.
    #[serde(default)]
    request_id: Option<String>,
}

/// The token: the only time it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateOutput {
    token: String,
    #[serde(flatten)]
    row: TokenRow,
    /// Those of its scopes that let the bearer run programs as this user.
    runs_code: Vec<String>,
}

impl Verb for Create {
    const REF: &'static str = "tokens.create";
    const SUMMARY: &'static str = "make an access token with scopes";
    const SCOPE: Right = Right::Admin;
    const CHANGES: bool = true;
    type In = CreateInput;
    type Out = CreateOutput;

    async fn run(ctx: Ctx, input: CreateInput) -> Result<CreateOutput> {
        let request = RequestKey::of(&ctx.caller, input.request_id.as_deref(), &input)?;
        let scopes: Vec<Scope> = input
            .scopes
            .iter()
            .map(|text| {
                text.parse().map_err(|error: weft_grants::ScopeError| {
                    Error::invalid("scopes", error.to_string())
                })
            })
            .collect::<Result<_>>()?;
        let scopes = Scopes::try_from(scopes)
            .map_err(|error| Error::invalid("scopes", error.to_string()))?;
        if let Identity::Token { scopes: own, .. } = &ctx.caller.identity
            && !own.covers_all(&scopes)
        {
            return Err(Error::Forbidden(
                "a token makes no token wider than itself".into(),
            ));
        }
        let ttl_ms = input.ttl_ms.unwrap_or(ACCESS_TTL_MS_DEFAULT);
        check::within("ttlMs", Some(ttl_ms), ACCESS_TTL_MS)?;
        check::text("name", input.name.as_deref(), LABEL_CHARS_MAX)?;
        let now = now_ms();
        let expires_at = limited(&ctx, now + ttl_ms).await?;
        let jti = random_id("k-", TASK_ID_CHARS)?;
        let claims = AccessClaims {
            iss: ctx.house.node_id(),
            aud: ctx.house.audience(),
            jti: jti.clone(),
            sub: ctx.caller.from(),
            scope: scopes.to_string(),
            iat: now / 1000,
            nbf: None,
            exp: expires_at / 1000,
        };
        let row = TokenRow {
            // A session of its own, so that two bearers never share an inbox by accident.
            session: format!("token-{}", &jti[2..]),
            token_id: jti,
            name: input.name,
            scope: scopes.to_string(),
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        let (row, claims) = ctx
            .house
            .commit(move |tx| {
                if let Some(request) = &request {
                    if let Some(made) = request.made(tx.sql())? {
                        return Ok(made);
                    }
                    request.keep(tx, &(&row, &claims))?;
                }
                tokens::insert(tx, &row)?;
                Ok((row, claims))
            })
            .await?;
        // The same claims always make the same token, so a repeated request gets what the first one got.
        let runs_code = scopes.running_code().map(ToString::to_string).collect();
        Ok(CreateOutput {
            token: mint_access(&ctx.house.keys(), &claims).expose().to_owned(),
            row,
            runs_code,
        })
    }
}

/// No token makes a token that outlives it.
async fn limited(ctx: &Ctx, wanted: u64) -> Result<u64> {
    let Identity::Token { jti, .. } = &ctx.caller.identity else {
        return Ok(wanted);
    };
    let jti = jti.clone();
    let own = ctx.house.look(move |sql| tokens::get(sql, &jti)).await?;
    Ok(own.map_or(wanted, |own| wanted.min(own.expires_at)))
}

/// Lists tokens.
pub(crate) struct List;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInput {}

/// Tokens, newest first. Never the tokens themselves.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListOutput {
    tokens: Vec<TokenRow>,
}

impl Verb for List {
    const REF: &'static str = "tokens.list";
    const SUMMARY: &'static str = "the access tokens, without the tokens themselves";
    const SCOPE: Right = Right::Admin;
    const CHANGES: bool = false;
    type In = ListInput;
    type Out = ListOutput;

    async fn run(ctx: Ctx, _: ListInput) -> Result<ListOutput> {
        Ok(ListOutput {
            tokens: ctx.house.look(tokens::all).await?,
        })
    }
}

/// Revokes one.
pub(crate) struct Revoke;

/// Which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RevokeInput {
    /// Its id.
    token_id: String,
    /// Revoking twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// The token, revoked.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RevokeOutput {
    token: TokenRow,
}

impl Verb for Revoke {
    const REF: &'static str = "tokens.revoke";
    const SUMMARY: &'static str = "end an access token now, with the streams that it opened";
    const SCOPE: Right = Right::Admin;
    const CHANGES: bool = true;
    type In = RevokeInput;
    type Out = RevokeOutput;

    async fn run(ctx: Ctx, input: RevokeInput) -> Result<RevokeOutput> {
        let house = ctx.house.clone();
        let row = ctx
            .house
            .commit(move |tx| {
                let row = tokens::revoke(tx, &input.token_id)?;
                // Before anybody is woken to look. If the commit fails after this, the token is refused for nothing until it
                // is revoked in earnest, or by the next node; the other way round it would be good for longer than told.
                house.tokens.put(row.clone());
                tx.wake(&tokens::wake_key(&row.token_id));
                Ok(row)
            })
            .await?;
        Ok(RevokeOutput { token: row })
    }
}
