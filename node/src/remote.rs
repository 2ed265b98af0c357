//! A node elsewhere: its URL, and the connection to it. In clear text only within this machine.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

use crate::exit::Failure;
use crate::http::Connection;
use crate::limits::REMOTE_CONNECT_MS;

const FORM: &str = "takes https://HOST[:PORT], or http://HOST:PORT on loopback";

/// Where a node is reached.
#[derive(Debug)]
pub(crate) struct Remote {
    url: String,
    authority: String,
    host: String,
    tls: bool,
    addresses: Vec<SocketAddr>,
}

impl Remote {
    /// Reads a URL and looks its addresses up. Without TLS all of them must be on loopback: a token in clear text must not leave
    /// the machine.
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        // Without the URL: what is refused may hold a password or a token.
        let refuse = |reason: &str| Failure::Usage(format!("--url: {reason}"));
        let parsed: Uri = url.parse().map_err(|_| refuse("is no URL"))?;
        let tls = match parsed.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refuse(FORM)),
        };
        let authority = parsed.authority().ok_or_else(|| refuse(FORM))?;
        if authority.as_str().contains('@')
            || !parsed.path().trim_end_matches('/').is_empty()
            || parsed.query().is_some()
        {
            return Err(refuse(&format!("{FORM}, and nothing more")));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let addresses: Vec<SocketAddr> = (host, port)
            .to_socket_addrs()
            .map_err(|error| Failure::Failed(format!("--url: its host is not found: {error}")))?
            .collect();
        if addresses.is_empty() {
            return Err(Failure::Failed("--url: its host has no address".to_owned()));
        }
        if !tls && !addresses.iter().all(|address| address.ip().is_loopback()) {
            return Err(refuse(
                "http is for loopback only, since the token would travel in the clear; use https",
            ));
        }
        Ok(Remote {
            url: url.to_owned(),
            authority: authority.to_string(),
            host: host.to_owned(),
            tls,
            addresses,
        })
    }

    /// The `Host` of requests.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Connects to the first address that answers. With TLS it must prove the name by a certificate that this system trusts.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        timeout(Duration::from_millis(REMOTE_CONNECT_MS), self.reach())
            .await
            .unwrap_or_else(|_elapsed| {
                Err(self.failed(&format!("no connection within {REMOTE_CONNECT_MS} ms")))
            })
    }

    async fn reach(&self) -> Result<Connection, Failure> {
        let stream = self.tcp().await?;
        let connection = if self.tls {
            let name = ServerName::try_from(self.host.clone())
                .map_err(|error| self.failed(&error.to_string()))?;
            match self.trusting()?.connect(name, stream).await {
                Ok(stream) => Connection::over(stream).await,
                Err(error) => return Err(self.failed(&untrusted(&error))),
            }
        } else {
            Connection::over(stream).await
        };
        connection.map_err(|error| self.failed(&error.to_string()))
    }

    async fn tcp(&self) -> Result<TcpStream, Failure> {
        let mut reason = "no address".to_owned();
        for &address in &self.addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(self.failed(&reason))
    }

    /// TLS with the roots of this system, or those of the file or folder that `SSL_CERT_FILE` or `SSL_CERT_DIR` names.
    fn trusting(&self) -> Result<TlsConnector, Failure> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            let why = found
                .errors
                .first()
                .map_or_else(String::new, |error| format!(" ({error})"));
            return Err(self.failed(&format!(
                "this system has no root certificates{why}: install ca-certificates, or name a file of them in SSL_CERT_FILE"
            )));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| self.failed(&error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::Failed(format!("{}: {reason}", self.url))
    }
}

/// Why TLS did not come about, with what to do where a certificate is the cause.
fn untrusted(error: &std::io::Error) -> String {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(rustls::Error::InvalidCertificate(cause)) = cause else {
        return error.to_string();
    };
    let advice = match cause {
        CertificateError::UnknownIssuer => {
            "nobody that this system trusts has signed it; SSL_CERT_FILE names a file of those to trust instead"
        }
        // The library has no name of its own for this.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is made for signing others (CA:TRUE); the server needs one of its own"
        }
        _ => "the server needs another",
    };
    format!("its certificate is refused: {cause}: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leaves_the_machine_by_no_url_in_the_clear() {
        for url in [
            "http://127.0.0.1:7411",
            "http://127.0.0.1:7411/",
            "http://[::1]:1",
            "https://192.0.2.1:7411",
            "https://127.0.0.1",
        ] {
            assert!(Remote::parse(url).is_ok(), "{url}");
        }
        for url in [
            "http://192.0.2.1:7411",
            "ftp://127.0.0.1",
            "127.0.0.1:7411",
            "http://u@127.0.0.1",
            "https://u:word@127.0.0.1",
            "https://127.0.0.1/x",
            "http://127.0.0.1/?token=word",
            "",
        ] {
            match Remote::parse(url) {
                Err(Failure::Usage(said)) => assert!(!said.contains("word"), "{said}"),
                other => panic!("{url}: {other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_a_connection_and_says_nothing_is_given_up() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let remote = Remote::parse(&format!("https://127.0.0.1:{port}")).unwrap();
        let failure = remote.connect().await.err().unwrap().to_string();
        assert!(failure.contains("within 15000 ms"), "{failure}");
    }
}
