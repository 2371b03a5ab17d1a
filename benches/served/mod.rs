//! How do many servers fit into one thread? Each has an address of its own in 127.0.0.0/8, all share one port, and a function says what they answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with one request.
pub struct Answer {
    /// Goes over the wire as it is.
    pub bytes: Arc<[u8]>,
    /// Silence afterwards.
    pub pause: Duration,
    /// Whether the connection ends then.
    pub closes: bool,
}

/// Head and body of a page.
pub fn http(status: &str, body: &str, announced: usize) -> Arc<[u8]> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {announced}\r\n\r\n");
    [head.as_bytes(), body.as_bytes()].concat().into()
}

/// Starts the servers; the address of each is what `answer` is asked with. Gives the port.
pub fn start(answer: impl Fn(Ipv4Addr) -> Answer + Send + Sync + 'static) -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").expect("listen on loopback");
    listener.set_nonblocking(true).expect("a listener that does not block");
    let port = listener.local_addr().expect("a bound address").port();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(accept(listener, Arc::new(answer)));
    });
    port
}

async fn accept(listener: std::net::TcpListener, answer: Arc<impl Fn(Ipv4Addr) -> Answer + Send + Sync + 'static>) {
    let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
    loop {
        // An error is the other side's: it gave up before it was accepted.
        let Ok((stream, _)) = listener.accept().await else { continue };
        if let Ok(SocketAddr::V4(local)) = stream.local_addr() {
            tokio::spawn(serve(stream, *local.ip(), Arc::clone(&answer)));
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    address: Ipv4Addr,
    answer: Arc<impl Fn(Ipv4Addr) -> Answer + Send + Sync + 'static>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await? > 0 {
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        request.clear();
        let Answer { bytes, pause, closes } = answer(address);
        stream.write_all(&bytes).await?;
        tokio::time::sleep(pause).await;
        if closes {
            break;
        }
    }
    Ok(())
}

/// The URL of the page of one of the servers.
pub fn url(address: impl Into<IpAddr>, port: u16) -> String {
    format!("http://{}:{port}/metrics", address.into())
}
