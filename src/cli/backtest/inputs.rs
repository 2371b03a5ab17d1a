//! Which configurations and which traffic? Files for the pure rooms, refused where they cannot be meant.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use flate2::bufread::MultiGzDecoder;

use super::BacktestArgs;
use crate::cli::Failure;
use crate::cli::load::{GZIP, load};
use crate::config::{Flags, ModelConfig, ModelSelector};
use crate::planner::policy::{CapacityModel, Mode, ModelPolicy, PoolPolicy, Preset};
use crate::report::text::printable;
use crate::simulator::backtest::{MOST_TICKS, Scenario};
use crate::simulator::trace::edit::Edits;
use crate::simulator::trace::{self, Format, Generation, Trace, shape};
use crate::units::{ModelId, Ratio, Role};

/// Bytes of a trace at most, unpacked; a day of the largest public trace is below that.
const MOST_BYTES: u64 = 1 << 30;

/// What a file says of the model to be judged.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The file's name.
    pub name: String,
    /// The model.
    pub policy: ModelPolicy,
    /// The file and those that it names.
    pub files: Vec<PathBuf>,
}

/// The chosen model of a file, with what its operator should know.
pub(super) fn configuration(file: &Path, model: Option<&str>) -> Result<Configuration, Failure> {
    let loaded = load(Some(file), Flags::default())?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let policy = chosen(file, &loaded.config.models, model)?;
    if policy.mode != Mode::Publish {
        tracing::warn!("{}: mode {} would publish nothing to judge, so it is played as publish", file.display(), policy.mode.as_str());
    }
    Ok(Configuration { name: file.display().to_string(), policy, files: loaded.config.files })
}

fn chosen(file: &Path, models: &[ModelConfig], name: Option<&str>) -> Result<ModelPolicy, Failure> {
    let names = || {
        let name = |model: &ModelConfig| match &model.selector {
            ModelSelector::Named(id) => id.to_string(),
            ModelSelector::Any => "any".to_owned(),
        };
        models.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let refused = |expected: String| Failure::Usage(format!("{}: {expected}", file.display()));
    let model = match (name, models) {
        (None, [only]) => only,
        (None, _) => return Err(refused(format!("expected --model NAME, since several models are planned: {}", names()))),
        (Some(name), _) => {
            let named = models.iter().find(|model| matches!(&model.selector, ModelSelector::Named(id) if id.as_str() == name));
            let found = named.or_else(|| models.iter().find(|model| model.selector == ModelSelector::Any));
            found.ok_or_else(|| refused(format!("--model: expected one of {}, got {name:?}", names())))?
        }
    };
    match &model.selector {
        ModelSelector::Named(_) => Ok(model.policy.clone()),
        ModelSelector::Any => Ok(model.policy_for(&ModelId::from(name.unwrap_or("default"))).map_err(|problem| anyhow!(problem))?),
    }
}

/// The first configuration with a profile: it describes the simulated servers.
pub(super) fn servers(configurations: &[Configuration]) -> Result<&Configuration, Failure> {
    let measured = |configuration: &&Configuration| matches!(configuration.policy.capacity, CapacityModel::Envelope(_));
    configurations.iter().find(measured).ok_or_else(no_servers)
}

/// That nobody describes the servers.
pub(super) fn no_servers() -> Failure {
    Failure::Usage(
        "--config: the simulated servers are made of a profile (planner.profile), so expected one configuration with a profile; for presets \
         that read none give it beside theirs"
            .to_owned(),
    )
}

/// Whether the servers have the pools that a configuration plans.
pub(super) fn playable(servers: &Configuration, other: &Configuration, aggregated: bool) -> Result<(), Failure> {
    let of = |configuration: &Configuration, role| configuration.policy.pools.iter().filter(|pool| pool.role == role).count();
    for pool in &other.policy.pools {
        let there = if aggregated { usize::from(pool.role == Role::Aggregated) } else { of(servers, pool.role) };
        let message = match (there, of(other, pool.role)) {
            (0, _) if aggregated => format!("--aggregated: expected one aggregated pool, got {} of role {}", pool.pool, pool.role),
            (0, _) => format!("expected pools of the roles of {}, got {} of role {}", servers.name, pool.pool, pool.role),
            (_, 1) => continue,
            _ => format!(
                "expected one pool of each role, since the simulated replicas of one role are alike, got several of role {}",
                pool.role
            ),
        };
        return Err(Failure::Usage(format!("{}: {message}", other.name)));
    }
    Ok(())
}

/// What of another configuration has no effect, because the servers are of `servers`.
pub(super) fn unlike(servers: &Configuration, other: &Configuration) -> Vec<String> {
    let mut found = Vec::new();
    let (name, first, other) = (&servers.name, &servers.policy, &other.policy);
    if !other.slo.explicit && other.preset == Preset::Wva {
        found.push(format!("its objectives are learned; it is judged by those of {name}"));
    } else if other.slo != first.slo {
        found.push(format!("its objectives are others; it is judged by those of {name}"));
    }
    if other.model != first.model {
        found.push(format!("it plans model {}; the requests and servers are those of {} in {name}", other.model, first.model));
    }
    if let (CapacityModel::Envelope(own), CapacityModel::Envelope(used)) = (&other.capacity, &first.capacity)
        && own.document() != used.document()
    {
        found.push(format!("its profile is another; it plans by that, on servers of the profile of {name}"));
    }
    let gpus = |pool: &PoolPolicy| pool.gpus_per_replica.map(std::num::NonZeroU32::get);
    for pool in &other.pools {
        if let Some(used) = first.pools.iter().find(|used| used.role == pool.role)
            && gpus(used) != gpus(pool)
        {
            let shown = |pool: &PoolPolicy| gpus(pool).map_or_else(|| "those of its profile".to_owned(), |gpus| gpus.to_string());
            let (own, used) = (shown(pool), shown(used));
            found.push(format!("gpus_per_replica of its {} pool is {own}; servers and cost are those of {name}, {used}", pool.role));
        }
    }
    found
}

/// The traffic, scaled.
pub(super) fn traffic(args: &BacktestArgs) -> Result<Trace, Failure> {
    let name = printable(&args.trace);
    let trace = if args.trace.starts_with(shape::PREFIX) {
        let trace = shape::parse(&args.trace).and_then(|curve| Trace::following(&curve, args.seed));
        let trace = trace.map_err(|problems| Failure::Usage(format!("--trace {name}: {problems}")))?;
        if trace.requests.is_empty() {
            return Err(Failure::Usage(format!("--trace {name}: expected requests, got none at these rates")));
        }
        trace
    } else {
        let text = read_text(&args.trace)?;
        note_spread(&text);
        let trace = trace::read(&text, &Generation { seed: args.seed, ..Generation::default() });
        let trace = trace.with_context(|| format!("trace {name}"))?;
        if trace.requests.is_empty() {
            return Err(anyhow!("trace {name}: expected requests, got none at these rates").into());
        }
        trace
    };
    let before = trace.requests.len();
    let edits = Edits { factor: Ratio(args.scale), seed: args.seed, ..Edits::default() };
    edits.apply(trace).map_err(|problems| Failure::Usage(format!("--scale {:?}, of {before} requests: {problems}", args.scale)))
}

/// That lengths are drawn though the table does not say how.
fn note_spread(text: &str) {
    let header = || text.lines().find(|line| line.contains(',')).unwrap_or_default().to_ascii_lowercase();
    if Format::of(text) == Some(Format::Rates) && !(header().contains("isl_cv") && header().contains("osl_cv")) {
        let spread = Generation::default();
        tracing::info!(
            "isl and osl are means; their spread is taken as {} and {} where there are no columns isl_cv and osl_cv",
            spread.input_variation.get(),
            spread.output_variation.get()
        );
    }
}

/// That the trace has a part to be judged, and is no longer than can be played.
pub(super) fn check_spans(args: &BacktestArgs, trace: &Trace, configurations: &[Configuration]) -> Result<(), Failure> {
    let name = printable(&args.trace);
    let shown = |span| humantime::format_duration(span);
    if trace.length.is_zero() {
        return Err(anyhow!("trace {name}: expected requests over some time, got all of them at the same moment").into());
    }
    for configuration in configurations {
        let interval = configuration.policy.scrape_interval;
        if trace.length > Scenario::longest(interval) {
            return Err(Failure::Usage(format!(
                "--trace {name}: it lasts {}, and with the scrape.interval of {} in {} expected at most {}, which is {MOST_TICKS} intervals; \
                 one mistyped time makes a trace as long",
                shown(trace.length),
                shown(interval),
                configuration.name,
                shown(Scenario::longest(interval)),
            )));
        }
    }
    if args.warm_up >= trace.length {
        return Err(Failure::Usage(format!("--warm-up: expected less than the length of the trace, {}", shown(trace.length))));
    }
    match trace.requests.last() {
        Some(last) if last.at < args.warm_up => {
            Err(Failure::Usage(format!("--warm-up: expected requests after it, but the last one comes at {}", shown(last.at))))
        }
        _ => Ok(()),
    }
}

/// The text of a file, unpacked if it is gzipped.
fn read_text(file: &str) -> Result<String, Failure> {
    let name = printable(file);
    // A pipe or a device would block or never end.
    let found = fs::metadata(file).map_err(|error| {
        let of_shape = shape::NAMES.contains(&file.split('?').next().unwrap_or_default());
        let hint = if of_shape { format!("; for the shape write {}{name}", shape::PREFIX) } else { String::new() };
        Failure::Usage(format!("--trace {name}: cannot be read: {error}{hint}"))
    })?;
    if !found.is_file() {
        return Err(Failure::Usage(format!("--trace {name}: expected a file, got something else")));
    }
    let read = File::open(file).map_err(anyhow::Error::new).and_then(|file| unpacked(BufReader::new(file), MOST_BYTES));
    Ok(read.with_context(|| format!("read the trace {name}"))?)
}

fn unpacked(mut bytes: impl BufRead, most: u64) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if bytes.fill_buf()?.starts_with(&GZIP) {
        MultiGzDecoder::new(bytes).take(most + 1).read_to_string(&mut text).context("expected text, gzipped")?
    } else {
        bytes.take(most + 1).read_to_string(&mut text).context("expected UTF-8 text, or such text gzipped")?
    };
    anyhow::ensure!(read as u64 <= most, "expected at most {most} bytes, unpacked");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn text_is_read_packed_or_not_and_never_more_than_fits() {
        let text = "0123456789".repeat(1000);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        for bytes in [packed.as_slice(), text.as_bytes()] {
            assert_eq!(unpacked(bytes, 10_000).unwrap(), text);
            assert_eq!(unpacked(bytes, 9_999).unwrap_err().to_string(), "expected at most 9999 bytes, unpacked");
        }
        assert!(unpacked(&[0xff_u8, 0xfe][..], 10).is_err() && unpacked(&packed[..20], 10_000).is_err());
    }
}
