//! `mesh.grant`, `mesh.grants`, `mesh.revoke`: rights to post, counted and signed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::limits::{GRANT_TTL_MS, GRANT_TTL_MS_DEFAULT, GRANT_USES, GRANT_USES_DEFAULT};
use weft_grants::{GrantClaims, Right, mint_grant};
use weft_mesh::{GrantRow, Kind, NewGrant, Topic};

use crate::action::{Ctx, Verb};
use crate::check;
use crate::error::{Error, Result};
use crate::house::{House, now_ms, random_id};
use crate::limits::{LABEL_CHARS_MAX, TASK_ID_CHARS};
use crate::requests::RequestKey;
use crate::task::quote::shell_quoted;

/// Mints a grant.
pub(crate) struct Grant;

/// For what.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GrantInput {
    /// The one topic.
    topic: String,
    /// The one kind; any unless given.
    #[serde(default)]
    kind: Option<Kind>,
    /// 60000 to 2592000000 milliseconds; a day unless given.
    #[serde(default)]
    ttl_ms: Option<u64>,
    /// 1 to 10000 posts; one unless given.
    #[serde(default)]
    uses: Option<u32>,
    /// What it is for.
    #[serde(default)]
    description: Option<String>,
    /// The same id again gets the same grant.
    #[serde(default)]
    request_id: Option<String>,
}

/// The grant with its token: the only time it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantOutput {
    grant_id: String,
    token: String,
    topic: String,
    kind: Option<String>,
    uses: u32,
    /// Epoch milliseconds.
    expires_at: u64,
    /// Ready to paste; it takes the token from a file or standard input, never from its arguments.
    command: String,
    /// How that command reaches this mesh.
    via: Via,
}

/// How a grant's command reaches the mesh.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Via {
    /// The node's public address, from its settings.
    Url,
    /// The home's socket: on this machine, as this user.
    Home,
}

impl Verb for Grant {
    const REF: &'static str = "mesh.grant";
    const SUMMARY: &'static str =
        "mint a grant: a bounded number of posts of one kind to one topic";
    const SCOPE: Right = Right::GrantsMint;
    const CHANGES: bool = true;
    type In = GrantInput;
    type Out = GrantOutput;

    async fn run(ctx: Ctx, input: GrantInput) -> Result<GrantOutput> {
        let (claims, grant) = checked(&ctx, &input)?;
        let request = RequestKey::of(&ctx.caller, input.request_id.as_deref(), &input)?;
        let made = ctx
            .house
            .commit(move |tx| {
                if let Some(request) = &request {
                    if let Some(made) = request.made(tx.sql())? {
                        return Ok(made);
                    }
                    request.keep(tx, &claims)?;
                }
                tx.insert_grant(&grant)?;
                Ok(claims)
            })
            .await?;
        // The same claims always make the same token, so a repeated request gets what the first one got.
        Ok(answer(&ctx.house, &made))
    }
}

fn checked(ctx: &Ctx, input: &GrantInput) -> Result<(GrantClaims, NewGrant)> {
    let topic = Topic::parse_public(&input.topic)?;
    ctx.caller.require_on(Right::GrantsMint, topic.as_str())?;
    let ttl_ms = input.ttl_ms.unwrap_or(GRANT_TTL_MS_DEFAULT);
    check::within("ttlMs", Some(ttl_ms), GRANT_TTL_MS)?;
    let uses = input.uses.unwrap_or(GRANT_USES_DEFAULT);
    check::within("uses", Some(uses), GRANT_USES)?;
    check::text("description", input.description.as_deref(), LABEL_CHARS_MAX)?;
    let now = now_ms() / 1000;
    let claims = GrantClaims {
        iss: ctx.house.node_id(),
        aud: ctx.house.audience(),
        jti: random_id("g-", TASK_ID_CHARS)?,
        topic: topic.to_string(),
        kind: input.kind.as_ref().map(ToString::to_string),
        eid: None,
        uses,
        iat: now,
        nbf: None,
        exp: now + ttl_ms.div_ceil(1000),
    };
    let grant = NewGrant {
        jti: claims.jti.clone(),
        topic,
        kind: input.kind.clone(),
        eid: None,
        uses,
        exp: claims.exp,
        description: input.description.clone(),
        minted_by: ctx.caller.from(),
    };
    Ok((claims, grant))
}

fn answer(house: &House, claims: &GrantClaims) -> GrantOutput {
    let home = house.home.root.to_string_lossy();
    let (via, place) = match &house.settings.public_url {
        Some(url) => (Via::Url, ["--url", url]),
        None => (Via::Home, ["--home", &home]),
    };
    let mut words: Vec<&str> = vec!["weft", "mesh", "post"];
    words.extend(place);
    words.extend(["--topic", &claims.topic]);
    if let Some(kind) = &claims.kind {
        words.extend(["--kind", kind]);
    }
    words.extend(["--token-file", "TOKEN_FILE", "--data", "{}"]);
    GrantOutput {
        grant_id: claims.jti.clone(),
        token: mint_grant(&house.keys(), claims).expose().to_owned(),
        topic: claims.topic.clone(),
        kind: claims.kind.clone(),
        uses: claims.uses,
        expires_at: claims.exp * 1000,
        command: shell_quoted(&words),
        via,
    }
}

/// Lists grants.
pub(crate) struct Grants;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantsInput {}

/// A grant as the ledger has it, with what follows from it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantView {
    grant_id: String,
    #[serde(flatten)]
    row: GrantRow,
    uses_left: u32,
    expires_at: u64,
}

/// Grants, newest first. Never a token.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GrantsOutput {
    grants: Vec<GrantView>,
}

impl Verb for Grants {
    const REF: &'static str = "mesh.grants";
    const SUMMARY: &'static str = "the grants with their uses left; never their tokens";
    const SCOPE: Right = Right::GrantsMint;
    const CHANGES: bool = false;
    type In = GrantsInput;
    type Out = GrantsOutput;

    async fn run(ctx: Ctx, _: GrantsInput) -> Result<GrantsOutput> {
        let mut rows = ctx.house.store.grants().await?;
        rows.retain(|row| {
            ctx.caller
                .require_on(Right::GrantsMint, row.topic.as_str())
                .is_ok()
        });
        let grants = rows
            .into_iter()
            .map(|row| GrantView {
                grant_id: row.jti.clone(),
                uses_left: row.uses_left(),
                expires_at: row.exp * 1000,
                row,
            })
            .collect();
        Ok(GrantsOutput { grants })
    }
}

/// Revokes a grant.
pub(crate) struct Revoke;

/// Which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RevokeInput {
    /// The grant's id.
    grant_id: String,
    /// Revoking twice is the same as once.
    #[serde(default)]
    #[expect(dead_code, reason = "taken and not needed: the verb is idempotent")]
    request_id: Option<String>,
}

/// Done.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevokeOutput {
    grant_id: String,
    revoked: bool,
}

impl Verb for Revoke {
    const REF: &'static str = "mesh.revoke";
    const SUMMARY: &'static str =
        "end a grant now; a task whose completion grant is revoked posts no event";
    const SCOPE: Right = Right::GrantsMint;
    const CHANGES: bool = true;
    type In = RevokeInput;
    type Out = RevokeOutput;

    async fn run(ctx: Ctx, input: RevokeInput) -> Result<RevokeOutput> {
        let known = ctx
            .house
            .store
            .grants()
            .await?
            .into_iter()
            .find(|row| row.jti == input.grant_id);
        let row = known.ok_or_else(|| Error::NotFound {
            what: "grant",
            id: input.grant_id.clone(),
        })?;
        ctx.caller
            .require_on(Right::GrantsMint, row.topic.as_str())?;
        ctx.house.store.revoke(&input.grant_id).await?;
        Ok(RevokeOutput {
            grant_id: input.grant_id,
            revoked: true,
        })
    }
}
