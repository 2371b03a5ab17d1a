//! What do servers do when they misbehave? Fake servers on real sockets, on loopback and a free port, that behave as told.
//!
//! `FakeServer::start(behaviour).await` serves until it is dropped. Behaviour and page may be changed while it runs; a change applies
//! to the next request. Needs a tokio runtime, which must keep running while others ask the server.

#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// What a server does with a request.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Answers with the current page and keeps the connection.
    Page,
    /// Accepts and says nothing, for good.
    Hang,
    /// Sends headers and nothing else, for good.
    HangAfterHeaders,
    /// Sends headers and then one byte of the page each time.
    Trickle(Duration),
    /// Answers with this status and a body of plain text.
    Status(u16),
    /// Answers 200 with these headers, in lines, and this body; announces the length unless the headers do, and then closes.
    Body { headers: String, body: Vec<u8> },
    /// Sends these bytes as they are, and closes.
    Raw(Vec<u8>),
    /// Sends a page of so many bytes that never repeats, with or without announcing them.
    Huge { bytes: usize, announced: bool },
    /// Answers 307 with this Location, except for the path `/page`, where the page is.
    Redirect(String),
    /// Answers each connection's first request and resets the connection at the second.
    ResetSecondRequest,
    /// Reads the request and closes without a word.
    CloseUnanswered,
    /// Sends headers and half of the announced page, and resets.
    ResetInBody,
    /// Closes the port: connections are refused, open ones reset.
    Refuse,
}

/// A server that behaves as told.
#[derive(Debug)]
pub struct FakeServer {
    /// Where it listens.
    pub addr: SocketAddr,
    behaviour: watch::Sender<Behaviour>,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

/// Makes a page at the moment of the request.
type Live = Box<dyn Fn() -> Vec<u8> + Send>;

#[derive(Default)]
struct Shared {
    page: Mutex<String>,
    live: Mutex<Option<Live>>,
    requests: AtomicUsize,
    connections: AtomicUsize,
    sent: AtomicUsize,
    last_request: Mutex<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl FakeServer {
    /// A server with an empty page; see [`FakeServer::set_page`].
    pub async fn start(behaviour: Behaviour) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), behaviour).await
    }

    /// The same at an address of one's own: all of 127.0.0.0/8 is this machine.
    pub async fn start_at(addr: SocketAddr, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, receiver) = watch::channel(behaviour);
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(serve(Some(listener), addr, receiver, Arc::clone(&shared)));
        Self { addr, behaviour: sender, shared, task }
    }

    /// A server that answers with this page.
    pub async fn with_page(page: &str) -> Self {
        let server = Self::start(Behaviour::Page).await;
        server.set_page(page);
        server
    }

    /// Behaves so from now on.
    pub fn set(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// Shows this page from now on.
    pub fn set_page(&self, page: &str) {
        page.clone_into(&mut self.shared.page.lock().unwrap());
    }

    /// Shows what this makes at each request from now on, instead of a fixed page.
    pub fn set_live_page(&self, page: impl Fn() -> Vec<u8> + Send + 'static) {
        *self.shared.live.lock().unwrap() = Some(Box::new(page));
    }

    /// `http://host:port/metrics`.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.addr)
    }

    /// Requests that were read.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Connections that were accepted.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes of bodies that the other side, or its socket, took.
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// The head of the last request.
    pub fn last_request(&self) -> String {
        self.shared.last_request.lock().unwrap().clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections while the behaviour is not to refuse them.
async fn serve(mut listener: Option<TcpListener>, addr: SocketAddr, mut behaviour: watch::Receiver<Behaviour>, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        if matches!(*behaviour.borrow_and_update(), Behaviour::Refuse) {
            listener = None;
            connections.shutdown().await;
            if behaviour.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            listener = TcpListener::bind(addr).await.ok();
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        tokio::select! {
            changed = behaviour.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
            accepted = open.accept() => if let Ok((stream, _)) = accepted {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                // Head and body are written apart, which would cost 40 ms each otherwise.
                let _ = stream.set_nodelay(true);
                connections.spawn(connection(stream, behaviour.clone(), Arc::clone(&shared)));
            },
        }
    }
}

/// One connection until it is to be closed. Errors mean that the other side has gone.
async fn connection(mut stream: TcpStream, behaviour: watch::Receiver<Behaviour>, shared: Arc<Shared>) {
    let mut answered = 0;
    while let Some(head) = read_head(&mut stream).await {
        shared.requests.fetch_add(1, Ordering::SeqCst);
        shared.last_request.lock().unwrap().clone_from(&head);
        let behaviour = behaviour.borrow().clone();
        if !answer(&mut stream, &head, behaviour, answered, &shared).await.unwrap_or(false) {
            break;
        }
        answered += 1;
    }
}

/// The head of a request with its empty line; `None` when the other side closes or does not speak HTTP.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
        if !head[0].is_ascii_alphabetic() {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Whether the connection is kept.
async fn answer(stream: &mut TcpStream, head: &str, behaviour: Behaviour, answered: usize, shared: &Shared) -> std::io::Result<bool> {
    const TEXT: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    let live = shared.live.lock().unwrap().as_ref().map(|page| page());
    let page = live.unwrap_or_else(|| shared.page.lock().unwrap().clone().into_bytes());
    let length = page.len();
    match behaviour {
        Behaviour::Redirect(location) if !head.starts_with("GET /page ") => {
            let head = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            return Ok(true);
        }
        Behaviour::ResetSecondRequest if answered > 0 => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
        Behaviour::Page | Behaviour::Redirect(_) | Behaviour::ResetSecondRequest => {
            send(stream, &format!("HTTP/1.1 200 OK\r\n{TEXT}Content-Length: {length}\r\n\r\n"), &page, shared).await?;
            return Ok(true);
        }
        Behaviour::Hang => std::future::pending().await,
        Behaviour::HangAfterHeaders => {
            send(stream, &format!("HTTP/1.1 200 OK\r\n{TEXT}Content-Length: {length}\r\n\r\n"), b"", shared).await?;
            std::future::pending().await
        }
        Behaviour::Trickle(pause) => {
            send(stream, &format!("HTTP/1.1 200 OK\r\n{TEXT}Content-Length: {length}\r\n\r\n"), b"", shared).await?;
            for byte in page {
                send(stream, "", &[byte], shared).await?;
                sleep(pause).await;
            }
        }
        Behaviour::Status(status) => {
            send(stream, &format!("HTTP/1.1 {status} Fake\r\n{TEXT}Content-Length: 5\r\n\r\n"), b"oops\n", shared).await?;
        }
        Behaviour::Body { headers, body } => {
            let lower = headers.to_ascii_lowercase();
            let framed = lower.contains("content-length:") || lower.contains("transfer-encoding:");
            let length = if framed { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
            let lines: String = headers.lines().map(|line| format!("{line}\r\n")).collect();
            send(stream, &format!("HTTP/1.1 200 OK\r\n{lines}{length}Connection: close\r\n\r\n"), &body, shared).await?;
        }
        Behaviour::Raw(bytes) => send(stream, "", &bytes, shared).await?,
        Behaviour::Huge { bytes, announced } => {
            let length = if announced { format!("Content-Length: {bytes}\r\n") } else { "Connection: close\r\n".to_owned() };
            send(stream, &format!("HTTP/1.1 200 OK\r\n{TEXT}{length}\r\n"), b"", shared).await?;
            let (mut line, mut sent) = (0, 0);
            while sent < bytes {
                let lines: String = (line..line + 1000).map(|line| format!("huge{{line=\"{line}\"}} 1\n")).collect();
                send(stream, "", lines.as_bytes(), shared).await?;
                line += 1000;
                sent += lines.len();
            }
        }
        Behaviour::ResetInBody => {
            send(stream, &format!("HTTP/1.1 200 OK\r\n{TEXT}Content-Length: {length}\r\n\r\n"), &page[..length / 2], shared).await?;
            sleep(Duration::from_millis(50)).await;
            stream.set_zero_linger()?;
        }
        Behaviour::CloseUnanswered | Behaviour::Refuse => {}
    }
    Ok(false)
}

async fn send(stream: &mut TcpStream, head: &str, body: &[u8], shared: &Shared) -> std::io::Result<()> {
    stream.write_all(head.as_bytes()).await?;
    for piece in body.chunks(16 << 10) {
        stream.write_all(piece).await?;
        shared.sent.fetch_add(piece.len(), Ordering::SeqCst);
    }
    stream.flush().await
}
