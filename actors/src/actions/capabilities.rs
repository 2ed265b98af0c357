//! `capabilities`: what a client asks first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_grants::Right;

use crate::action::{self, Ctx, Verb};
use crate::error::Result;
use crate::home::Home;
use crate::task::wire::PROTOCOL;

/// Tells what this node can do.
pub(crate) struct Capabilities;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapabilitiesInput {}

/// Version, protocol, features.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CapabilitiesOutput {
    version: String,
    /// The protocol between node, shims and clients.
    protocol: u32,
    /// The refs of its actions.
    features: Vec<&'static str>,
    /// The format of the home.
    home_format: u32,
    platform: String,
}

impl Verb for Capabilities {
    const REF: &'static str = "capabilities";
    const SUMMARY: &'static str = "version, protocol and features of the running node";
    const SCOPE: Right = Right::TasksRead;
    const CHANGES: bool = false;
    type In = CapabilitiesInput;
    type Out = CapabilitiesOutput;

    async fn run(ctx: Ctx, _: CapabilitiesInput) -> Result<CapabilitiesOutput> {
        Ok(CapabilitiesOutput {
            version: ctx.house.settings.version.clone(),
            protocol: PROTOCOL,
            features: action::all()
                .iter()
                .map(|action| action.reference)
                .collect(),
            home_format: Home::FORMAT,
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        })
    }
}
