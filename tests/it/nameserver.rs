//! What does a name server answer? A small one on loopback, with names that change while it runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The largest datagram that is sent; what is larger is asked for again over TCP.
const LARGEST_DATAGRAM: usize = 1232;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// What a name has.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub addresses: Vec<IpAddr>,
    /// Host and port.
    pub services: Vec<(String, u16)>,
}

/// A name server that runs until it is dropped.
#[derive(Debug)]
pub struct NameServer {
    pub addr: SocketAddr,
    names: Arc<Mutex<BTreeMap<String, Records>>>,
    /// Whether questions are answered at all.
    silent: Arc<Mutex<bool>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    pub async fn start() -> Self {
        // The same port for both; a free one for TCP is nearly always free for UDP as well.
        let (socket, listener) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
                break (socket, listener);
            }
        };
        let addr = socket.local_addr().unwrap();
        let (names, silent) = (Arc::<Mutex<BTreeMap<String, Records>>>::default(), Arc::<Mutex<bool>>::default());
        let (table, mute) = (Arc::clone(&names), Arc::clone(&silent));
        let task = tokio::spawn(async move {
            let mut question = [0; 4096];
            loop {
                let received = tokio::select! {
                    received = socket.recv_from(&mut question) => received,
                    Ok((stream, _)) = listener.accept() => {
                        tokio::spawn(over_tcp(stream, Arc::clone(&table)));
                        continue;
                    }
                };
                let Ok((length, from)) = received else { continue };
                if !*mute.lock().unwrap() {
                    let mut reply = answer(&question[..length], &table.lock().unwrap());
                    if reply.len() > LARGEST_DATAGRAM {
                        // Cut behind the question, without answers, and marked so.
                        reply.truncate(length.min(reply.len()));
                        reply[2] |= 0x02;
                        reply[6..12].fill(0);
                        reply.truncate(question_end(&reply));
                    }
                    let _gone = socket.send_to(&reply, from).await;
                }
            }
        });
        Self { addr, names, silent, task }
    }

    /// The name has these addresses from now on.
    pub fn set_addresses(&self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) {
        let records = Records { addresses: addresses.into_iter().collect(), ..Records::default() };
        self.names.lock().unwrap().insert(name.to_owned(), records);
    }

    /// The name has these SRV records from now on.
    pub fn set_services(&self, name: &str, services: &[(&str, u16)]) {
        let services = services.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        self.names.lock().unwrap().insert(name.to_owned(), Records { services, ..Records::default() });
    }

    /// The name is not there any more.
    pub fn forget(&self, name: &str) {
        self.names.lock().unwrap().remove(name);
    }

    pub fn set_silent(&self, silent: bool) {
        *self.silent.lock().unwrap() = silent;
    }
}

/// So many addresses of this machine: 127.0.1.1, 127.0.1.2 and so on.
pub fn loopback(count: u8) -> impl Iterator<Item = IpAddr> {
    (1..=count).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)))
}

/// Questions and answers with their length in front, until the other side closes.
async fn over_tcp(mut stream: TcpStream, names: Arc<Mutex<BTreeMap<String, Records>>>) -> Option<()> {
    loop {
        let mut question = vec![0; usize::from(stream.read_u16().await.ok()?)];
        stream.read_exact(&mut question).await.ok()?;
        let reply = answer(&question, &names.lock().unwrap());
        stream.write_u16(reply.len() as u16).await.ok()?;
        stream.write_all(&reply).await.ok()?;
    }
}

/// Where the question of a message ends.
fn question_end(message: &[u8]) -> usize {
    let mut at = 12;
    while message[at] != 0 {
        at += 1 + usize::from(message[at]);
    }
    at + 5
}

/// RFC 1035, section 4: one question, all its records, no compression but for the name of each record.
fn answer(question: &[u8], names: &BTreeMap<String, Records>) -> Vec<u8> {
    let (mut at, mut name) = (12, Vec::new());
    while question[at] != 0 {
        let length = usize::from(question[at]);
        name.push(String::from_utf8_lossy(&question[at + 1..at + 1 + length]).to_ascii_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let asked = &question[12..at + 5];
    let records = names.get(&name.join("."));
    let datas: Vec<Vec<u8>> = records.map_or_else(Vec::new, |records| match kind {
        A | AAAA => {
            let bytes = |address: &IpAddr| match address {
                IpAddr::V4(address) => (A, address.octets().to_vec()),
                IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
            };
            records.addresses.iter().map(bytes).filter(|(family, _)| *family == kind).map(|(_, bytes)| bytes).collect()
        }
        SRV => records.services.iter().map(|(host, port)| service(host, *port)).collect(),
        _ => Vec::new(),
    });
    // A response, authoritative, recursion available; name error where the name is not there.
    let mut reply = question[..2].to_vec();
    reply.extend([0x85, if records.is_some() { 0x80 } else { 0x83 }, 0, 1]);
    reply.extend((datas.len() as u16).to_be_bytes());
    reply.extend([0; 4]);
    reply.extend(asked);
    for data in datas {
        reply.extend([0xc0, 12]);
        reply.extend(kind.to_be_bytes());
        // Class IN, five seconds.
        reply.extend([0, 1, 0, 0, 0, 5]);
        reply.extend((data.len() as u16).to_be_bytes());
        reply.extend(data);
    }
    reply
}

fn service(host: &str, port: u16) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 0];
    data.extend(port.to_be_bytes());
    for label in host.split('.') {
        data.push(label.len() as u8);
        data.extend(label.bytes());
    }
    data.push(0);
    data
}
