//! How does our port speak TLS? The section `tls_server_config`, made into what a handshake needs.
//!
//! Where a client must show a certificate, the handshake lets those without one pass all the same, and the answers refuse them: only so do the
//! probes of a kubelet, which has none, reach the health pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DistinguishedName, NamedGroup, RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion, version};

use super::super::access::certificates;
use super::super::check::Values;
use super::super::resolve::path;

const SECTION: &str = "tls_server_config";

/// The words of `client_auth_type`. Prometheus knows two more, which take any certificate; one that nobody checks proves nothing.
pub(in crate::config) fn client_auth_types() -> Vec<&'static str> {
    vec!["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
}

/// The words of `min_version` and `max_version`, oldest first. What is older than TLS 1.2 is not spoken any more.
pub(in crate::config) fn versions() -> Vec<&'static str> {
    VERSIONS.iter().map(|(name, _)| *name).collect()
}

const VERSIONS: [(&str, &SupportedProtocolVersion); 2] = [("TLS12", &version::TLS12), ("TLS13", &version::TLS13)];

/// The suites of TLS 1.2 by the names of Go, which Prometheus' format uses.
const SUITES: [(&str, rustls::CipherSuite); 6] = {
    use rustls::CipherSuite::*;
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ]
};

pub(in crate::config) fn suites() -> Vec<&'static str> {
    SUITES.iter().map(|(name, _)| *name).collect()
}

/// The groups for the exchange of keys, by the names of Go.
const CURVES: [(&str, NamedGroup); 3] =
    [("X25519", NamedGroup::X25519), ("CurveP256", NamedGroup::secp256r1), ("CurveP384", NamedGroup::secp384r1)];

pub(in crate::config) fn curves() -> Vec<&'static str> {
    CURVES.iter().map(|(name, _)| *name).collect()
}

/// Certificates or a key: in a file, or written where the file would be named.
enum Pem {
    File(String, PathBuf),
    Written(String, String),
}

impl Pem {
    fn key(&self) -> &str {
        match self {
            Self::File(key, _) | Self::Written(key, _) => key,
        }
    }

    fn text<'a>(&'a self, texts: &'a Texts) -> Result<&'a str, String> {
        match self {
            Self::Written(_, text) => Ok(text),
            Self::File(_, path) => match texts.get(path) {
                Some(Ok(text)) => Ok(text),
                Some(Err(error)) => Err(format!("{} cannot be read: {error}", path.display())),
                None => Err(format!("{} does not exist", path.display())),
            },
        }
    }

    /// What it is called in messages.
    fn shown(&self) -> String {
        match self {
            Self::File(_, path) => path.display().to_string(),
            Self::Written(..) => "it".to_owned(),
        }
    }
}

type Texts = BTreeMap<PathBuf, Result<String, String>>;
/// A problem: the key, and what is wrong there.
type Told = (String, String);

/// The section, before its files are read.
pub(super) struct TlsDraft {
    certificate: Option<Pem>,
    key: Option<Pem>,
    authorities: Option<Pem>,
    needs_certificate: bool,
    allowed: Vec<ServerName<'static>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<String>,
    curves: Vec<String>,
    own_order: bool,
}

impl TlsDraft {
    /// Reads the section; what is wrong without any file goes to `values`.
    pub(super) fn read(values: &mut Values, folder: &Path) -> Self {
        let key = |name: &str| format!("{SECTION}.{name}");
        let certificate = pem(values, folder, "cert_file", "cert");
        let own_key = pem(values, folder, "key_file", "key");
        for (found, names) in [(&certificate, "cert_file or cert"), (&own_key, "key_file or key")] {
            let wrong = names.split(" or ").any(|name| values.is_wrong(&key(name)));
            if found.is_none() && !wrong {
                values.problem(SECTION, format!("expected {names}"));
            }
        }
        let authorities = pem(values, folder, "client_ca_file", "client_ca");
        let how = values.text(&key("client_auth_type"));
        let verified = how.as_deref().is_some_and(|how| how != "NoClientCert");
        let settled = how.is_some() && !values.is_wrong(&key("client_ca_file"));
        if settled && verified && authorities.is_none() {
            values.problem(&key("client_auth_type"), "expected client_ca_file or client_ca beside it");
        }
        if settled && !verified && authorities.is_some() {
            values.problem(&key("client_auth_type"), "expected one that verifies certificates, since there are authorities for them");
        }
        let texts = |values: &mut Values, list: &str| -> Vec<String> {
            let count = values.len(&key(list));
            (0..count).filter_map(|index| values.text(&key(&format!("{list}[{index}]")))).collect()
        };
        let mut allowed = Vec::new();
        for (index, name) in texts(values, "client_allowed_sans").into_iter().enumerate() {
            match ServerName::try_from(name) {
                Ok(name) => allowed.push(name),
                Err(_) => values.problem(&key(&format!("client_allowed_sans[{index}]")), "expected a DNS name or an IP address"),
            }
        }
        let number = |name: Option<String>| VERSIONS.iter().position(|(known, _)| Some(*known) == name.as_deref());
        let (oldest, newest) = (number(values.text(&key("min_version"))), number(values.text(&key("max_version"))));
        let range = oldest.unwrap_or(0)..=newest.unwrap_or(VERSIONS.len() - 1);
        if range.is_empty() {
            values.problem(&key("max_version"), "expected one that is not older than min_version");
        }
        let versions = range.map(|index| VERSIONS[index].1).collect();
        let (suites, curves) = (texts(values, "cipher_suites"), texts(values, "curve_preferences"));
        let own_order = values.switch(&key("prefer_server_cipher_suites")).unwrap_or(true);
        let needs_certificate = how.as_deref() == Some("RequireAndVerifyClientCert");
        Self { certificate, key: own_key, authorities, needs_certificate, allowed, versions, suites, curves, own_order }
    }

    /// Whether those without a certificate are refused.
    pub(super) fn needs_certificate(&self) -> bool {
        self.needs_certificate
    }

    /// The files that it needs.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key, &self.authorities].into_iter().flatten().filter_map(|pem| match pem {
            Pem::File(_, path) => Some(path),
            Pem::Written(..) => None,
        })
    }

    /// What handshakes need, or all that is wrong with the files.
    pub(super) fn build(&self, texts: &Texts) -> Result<ServerConfig, Vec<Told>> {
        let provider = Arc::new(self.provider());
        let (chain, own_key, verifier) = (self.chain(texts), self.private_key(texts), self.verifier(texts, &provider));
        let (chain, own_key, verifier) = match (chain, own_key, verifier) {
            (Ok(chain), Ok(own_key), Ok(verifier)) => (chain, own_key, verifier),
            (chain, own_key, verifier) => return Err([chain.err(), own_key.err(), verifier.err()].into_iter().flatten().collect()),
        };
        let wrong = |error: rustls::Error| vec![(SECTION.to_owned(), format!("these settings cannot be used together: {error}"))];
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&self.versions).map_err(wrong)?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, own_key).map_err(|error| {
            let what = match error {
                rustls::Error::InconsistentKeys(_) => "the certificate and the key do not belong together".to_owned(),
                other => format!("this certificate and its key cannot be used: {other}"),
            };
            vec![(self.certificate.as_ref().map_or(SECTION, Pem::key).to_owned(), what)]
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.ignore_client_order = self.own_order;
        Ok(config)
    }

    /// The methods of encryption that were chosen.
    fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            let chosen =
                |suite: rustls::CipherSuite| SUITES.iter().any(|(name, known)| *known == suite && self.suites.iter().any(|s| s == name));
            provider.cipher_suites.retain(|suite| suite.version() == &version::TLS13 || chosen(suite.suite()));
        }
        if !self.curves.is_empty() {
            let group = |name: &String| CURVES.iter().find(|(known, _)| known == name).map(|(_, group)| *group);
            let known = std::mem::take(&mut provider.kx_groups);
            let wanted = self.curves.iter().filter_map(group);
            provider.kx_groups = wanted.filter_map(|group| known.iter().find(|known| known.name() == group).copied()).collect();
        }
        provider
    }

    fn chain(&self, texts: &Texts) -> Result<Vec<CertificateDer<'static>>, Told> {
        let Some(pem) = &self.certificate else { return Ok(Vec::new()) };
        let told = |message: String| (pem.key().to_owned(), message);
        certificates(pem.text(texts).map_err(told)?)
            .map_err(|what| (pem.key().to_owned(), format!("expected a certificate as PEM in {}, got {what}", pem.shown())))
    }

    fn private_key(&self, texts: &Texts) -> Result<PrivateKeyDer<'static>, Told> {
        // Which of the two is missing was told where the section was read.
        let Some(pem) = &self.key else { return Err((SECTION.to_owned(), "a handshake needs a key".to_owned())) };
        let told = |message: String| (pem.key().to_owned(), message);
        let message = format!("expected a private key as PEM, without a passphrase, in {}, got none", pem.shown());
        PrivateKeyDer::from_pem_slice(pem.text(texts).map_err(told)?.as_bytes()).map_err(|_| told(message))
    }

    fn verifier(&self, texts: &Texts, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<dyn ClientCertVerifier>>, Told> {
        let Some(pem) = &self.authorities else { return Ok(None) };
        let told = |message: String| (pem.key().to_owned(), message);
        let found = certificates(pem.text(texts).map_err(told)?)
            .map_err(|what| told(format!("expected certificates of authorities as PEM in {}, got {what}", pem.shown())))?;
        let mut roots = RootCertStore::empty();
        if found.into_iter().any(|certificate| roots.add(certificate).is_err()) {
            return Err(told(format!("expected certificates of authorities in {}, got one that cannot be read", pem.shown())));
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).allow_unauthenticated();
        let inner = builder.build().map_err(|error| told(format!("these authorities cannot be used: {error}")))?;
        if self.allowed.is_empty() {
            return Ok(Some(inner));
        }
        Ok(Some(Arc::new(Named { inner, allowed: self.allowed.clone() })))
    }
}

/// The text of one of two keys.
fn pem(values: &mut Values, folder: &Path, file: &str, written: &str) -> Option<Pem> {
    let key = |name: &str| format!("{SECTION}.{name}");
    let (path, text) = (path(values, &key(file), folder), values.text(&key(written)));
    if path.is_some() && text.is_some() {
        values.problem(&key(written), format!("expected {file} or {written}, got both; keep one"));
    }
    path.map(|path| Pem::File(key(file), path)).or_else(|| Some(Pem::Written(key(written), text?)))
}

/// Takes certificates that also have one of some names.
#[derive(Debug)]
struct Named {
    inner: Arc<dyn ClientCertVerifier>,
    allowed: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for Named {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(certificate, between, now)?;
        let parsed = ParsedCertificate::try_from(certificate)?;
        if self.allowed.iter().any(|name| verify_server_name(&parsed, name).is_ok()) {
            return Ok(verified);
        }
        Err(rustls::CertificateError::NotValidForName.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
