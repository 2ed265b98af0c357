//! Posting to a node that is reached by https: a real TLS server stands before the node's socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use weft_tests::{Output, Stage};

use super::{mint, token};

/// Where nobody listens.
const NOBODY: &str = "https://localhost:1";
/// What the grants here are for.
const TOPIC: &str = "builds";

/// What stands behind the TLS.
enum Behind {
    Node(PathBuf),
    /// An answer that is the same for every request.
    Answer(String),
}

struct Front {
    port: u16,
    /// The certificate, as a file of roots.
    roots: PathBuf,
}

/// A TLS server with a certificate for `name`.
fn front(stage: &Stage, name: &str, behind: Behind) -> Front {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    let roots = stage.dir().join(format!("{name}.pem"));
    std::fs::write(&roots, cert.pem()).expect("a file of roots");
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a server's settings");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    listener.set_nonblocking(true).expect("a socket for tokio");
    // It ends with the test's process.
    std::thread::spawn(move || serve(listener, config, &behind));
    Front { port, roots }
}

fn serve(listener: std::net::TcpListener, config: ServerConfig, behind: &Behind) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).expect("a listener");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            // A client that does not trust the certificate hangs up here.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            match behind {
                Behind::Node(socket) => {
                    let mut node = UnixStream::connect(socket).await.expect("the node");
                    let _ = copy_bidirectional(&mut stream, &mut node).await;
                }
                Behind::Answer(answer) => {
                    // Asked first: whoever is answered before may take the end of the connection for the answer.
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                }
            }
        }
    });
}

fn post(stage: &Stage, url: &str, token_file: &Path, roots: Option<&Path>) -> Output {
    let mut command = stage.weft(["--json", "mesh", "post", "--url", url, "--token-file"]);
    command.arg(token_file).env_remove("WEFT_HOME");
    if let Some(roots) = roots {
        command.env("SSL_CERT_FILE", roots);
    }
    weft_tests::stage::finish(&mut command)
}

#[test]
fn a_post_reaches_a_node_behind_tls_that_proves_its_name_and_no_other() {
    let stage = Stage::new();
    let grant = mint(&stage, 2);
    let secret = token(&grant).to_owned();
    let file = stage.dir().join("token");
    std::fs::write(&file, &secret).expect("a token file");
    let node = || Behind::Node(stage.home().join("node.sock"));
    let here = front(&stage, "localhost", node());
    let url = format!("https://localhost:{}", here.port);
    let posted = post(&stage, &url, &file, Some(&here.roots))
        .expect_code(0)
        .json();
    assert_eq!(
        (&posted["topic"], &posted["usesLeft"]),
        (&TOPIC.into(), &1.into())
    );

    // A certificate that this system does not trust, or another root has not signed; one that names another; nobody there.
    let elsewhere = front(&stage, "elsewhere.example", node());
    let misnamed = format!("https://localhost:{}", elsewhere.port);
    for (url, roots) in [
        (url.as_str(), None),
        (url.as_str(), Some(elsewhere.roots.as_path())),
        (misnamed.as_str(), Some(elsewhere.roots.as_path())),
        (NOBODY, Some(here.roots.as_path())),
    ] {
        let refused = post(&stage, url, &file, roots).expect_code(1);
        let problem: serde_json::Value =
            serde_json::from_str(&refused.stderr).expect("one document");
        let detail = problem["detail"].as_str().expect("a reason");
        assert!(detail.starts_with(url), "{detail}");
        let is_no_trust = detail.contains("certificate");
        assert_eq!(is_no_trust, url != NOBODY, "{detail}");
        assert!(!refused.stderr.contains(&secret), "{refused:?}");
    }
    // None of them spent a use.
    let posted = post(&stage, &url, &file, Some(&here.roots))
        .expect_code(0)
        .json();
    assert_eq!(posted["usesLeft"], 0);
}

#[test]
fn a_token_is_carried_to_no_other_place_by_a_redirect() {
    let stage = Stage::new();
    let grant = mint(&stage, 1);
    let file = stage.dir().join("token");
    std::fs::write(&file, token(&grant)).expect("a token file");
    let aim = front(
        &stage,
        "localhost",
        Behind::Node(stage.home().join("node.sock")),
    );
    let to = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://localhost:{}/v1/topics/{TOPIC}/events\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        aim.port
    );
    let from = front(&stage, "localhost", Behind::Answer(to));
    let url = format!("https://localhost:{}", from.port);
    let refused = post(&stage, &url, &file, Some(&from.roots)).expect_code(1);
    assert!(refused.stderr.contains("307"), "{refused:?}");
    assert!(stage.events(&[TOPIC]).is_empty());
}
