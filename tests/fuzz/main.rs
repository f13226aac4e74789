//! Damaged and random files for the reader of every format.
//!
//! A reader of any file returns a usable value, or an error that names the file and the place in it. It does not panic,
//! and it takes memory in proportion to the size of the file. Each input follows from its number, and a failure names
//! the number and saves the input. There are 10⁴ inputs of each format; for a million:
//!
//! `GMM_FUZZ=1000000 cargo test --release --test fuzz`
mod memory;
mod mutation;
mod runs;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int16Array, RecordBatch, RecordBatchWriter, StringArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use gaussmix::fit::Fit;
use gaussmix::io::{
    self, Checkpoint, CheckpointOutput, ColumnSelection, DataFile, FitSummary, GroupFit, GroupModels, GroupOutput,
    Identity, Ids, Model, ModelInFile, ModelOutput, Problem, Table,
};
use gaussmix::model::{
    CovarianceType, Covariances, Mixture, VariationalMixture, VariationalPrior, WeightConcentrationPriorType,
};
use ndarray::{Array1, Array2, Axis};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::io::{Cursor, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// The memory that a reader may take.
struct Memory {
    /// Bytes for each byte of a file, beyond [`Memory::FIXED`].
    per_byte: u64,
    /// Further bytes for the claims of the file.
    claimed: fn(&[u8]) -> u64,
}

impl Memory {
    /// Bytes for any file: buffers, the state of a decompressor, messages.
    const FIXED: u64 = 64 << 10;
    /// The state of decompressors; that of bzip2 is the largest.
    const DECOMPRESSED: Self = Self { per_byte: 4096, claimed: |_| 8 << 20 };
    /// Deflate compresses to a thousandth at best.
    const ARCHIVED: Self = Self { per_byte: 2100, claimed: memory_for_claimed_members };

    const fn per_byte(per_byte: u64) -> Self {
        Self { per_byte, claimed: |_| 0 }
    }
}

/// Reads changes of good files of a format, which a reader recognises by the name of the file. Every error must contain
/// one of `places`, to say what is wrong or where. At least one input in a thousand must be read as a value, and at least
/// half must be refused: otherwise the inputs test nothing.
fn fuzz(file_name: &str, limit: Memory, places: &[&str], good: &[Vec<u8>], read: impl Fn(&Path) -> io::Result<()>) {
    // As in the program: caught panics are not reported.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !gaussmix::program::panics_are_caught() {
                report(panic);
            }
        }));
    });
    let count: u64 = std::env::var("GMM_FUZZ").map_or(10_000, |n| n.parse().expect("GMM_FUZZ is a number"));
    // Files in memory, if the system has such a folder.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join(file_name);
    let good_members: Vec<Members> =
        good.iter().filter(|_| file_name.ends_with(".npz")).map(|archive| members(archive)).collect();
    let input = |rng: &mut ChaCha8Rng| match &good_members[..] {
        [] => mutation::input(rng, good),
        members => archive_input(rng, good, members),
    };
    let (mut values, mut errors, mut most_memory) = (0, 0, 0.0f64);
    for number in 0..count {
        let bytes = input(&mut ChaCha8Rng::seed_from_u64(number));
        fs::write(&path, &bytes).unwrap();
        let allowed = Memory::FIXED + limit.per_byte * bytes.len() as u64 + (limit.claimed)(&bytes);
        let failed = |what: &str| -> ! {
            let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{number}-{file_name}"));
            fs::write(&saved, &bytes).unwrap();
            panic!("input {number}, saved as {}: {what}", saved.display())
        };
        match catch_unwind(AssertUnwindSafe(|| memory::peak(|| read(&path)))) {
            Err(_) => failed("a panic"),
            Ok((_, peak)) if peak > allowed => failed(&format!("{peak} bytes of memory for {}", bytes.len())),
            Ok((Ok(()), peak)) => {
                values += 1;
                most_memory = most_memory.max(peak as f64 / allowed as f64);
            }
            Ok((Err(error), peak)) => {
                errors += 1;
                most_memory = most_memory.max(peak as f64 / allowed as f64);
                let text = error.to_string();
                let says = text.strip_prefix(&format!("{}: ", path.display()));
                let place_named = |says: &str| places.iter().any(|place| says.contains(place));
                if !says.is_some_and(place_named) || text.len() > 2000 {
                    failed(&format!("the error does not name the place: {text}"));
                }
                if matches!(error.problem, Problem::Io { .. } | Problem::Changed) {
                    failed(&format!("the system is blamed: {text}"));
                }
            }
        }
    }
    println!("{file_name}: {values} values, {errors} errors, {:.0} % of the memory", 100.0 * most_memory);
    assert!(values * 1000 >= count && errors * 2 >= count, "{values} values and {errors} errors of {count} inputs");
}

fn npy<T: ndarray_npy::WritableElement, D: ndarray::Dimension>(array: &ndarray::Array<T, D>) -> Vec<u8> {
    let mut bytes = Vec::new();
    io::write_npy(array, &mut bytes).unwrap();
    bytes
}

/// Returns the .npy with the other byte order in its header.
fn swapped(npy: &[u8]) -> Vec<u8> {
    npy.iter().map(|&b| if b == b'<' { b'>' } else { b }).collect()
}

const NPY_PLACES: [&str; 3] = ["header", "not a .npy file", "array"];

/// Returns a table of numbers of several types, and a column of texts.
fn batch() -> RecordBatch {
    let columns: [(&str, ArrayRef, bool); 4] = [
        ("a", Arc::new(Float64Array::from_iter_values((0..40).map(|i| f64::from(i) / 4.0))), false),
        ("b", Arc::new(Float32Array::from_iter((0..40).map(|i| (i % 7 > 0).then_some(i as f32)))), true),
        ("c", Arc::new(Int16Array::from_iter_values((0..40).map(|i| i % 3))), false),
        ("name", Arc::new(StringArray::from_iter((0..40).map(|i| (i % 5 > 0).then(|| format!("no {i}"))))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn parquet(compression: Compression, dictionaries: bool) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(compression).set_dictionary_enabled(dictionaries);
    let properties = properties.set_max_row_group_row_count(Some(25)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch().schema(), Some(properties)).unwrap();
    writer.write(&batch()).unwrap();
    writer.close().unwrap();
    bytes
}

/// Writes the table in two batches.
fn write(mut writer: impl RecordBatchWriter) {
    [(0, 25), (25, 15)].into_iter().for_each(|(start, rows)| writer.write(&batch().slice(start, rows)).unwrap());
    writer.close().unwrap();
}

/// Returns a file of Arrow IPC without compression and by each, or a stream.
fn arrow(stream: bool) -> [Vec<u8>; 3] {
    let compressions = [None, Some(arrow_ipc::CompressionType::LZ4_FRAME), Some(arrow_ipc::CompressionType::ZSTD)];
    compressions.map(|compression| {
        let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let (mut bytes, schema) = (Vec::new(), batch().schema());
        match stream {
            false => write(FileWriter::try_new_with_options(&mut bytes, &schema, options).unwrap()),
            true => write(StreamWriter::try_new_with_options(&mut bytes, &schema, options).unwrap()),
        }
        bytes
    })
}

/// The most bytes of a table's numbers: a few bytes of a run-length encoding may stand for any number of rows.
const MOST_NUMBERS: u64 = 1 << 20;

fn read_table(path: &Path) -> io::Result<()> {
    let selection =
        ColumnSelection { drop: vec!["name".into()], id: Some("name".into()), ..ColumnSelection::default() };
    let table = Table::open(&[path], &selection)?;
    let Some(contents) = table.read_within(MOST_NUMBERS, &mut |_| {})? else { return Ok(()) };
    let n = contents.data.dim().0;
    assert_eq!(contents.ids.map(|ids| ids.len()).unwrap_or(0), n);
    let _ = contents.data.samples();
    let file = table.into_file(&mut |_| {})?;
    assert_eq!(file.dim(), contents.data.dim());
    let rows = n.min(1)..n.min(30);
    assert_eq!(file.rows(rows.clone())?.dim().0, rows.len());
    assert_eq!(file.ids(rows.clone())?.map_or(0, |ids| ids.len()), rows.len());
    Ok(())
}

/// The places that errors in a table of Arrow's columns name.
const TABLE_PLACES: [&str; 6] =
    ["the file is damaged", "column", "the compression ", "not an Arrow IPC file", "Feather", "the compressed content"];

#[test]
fn parquet_data() {
    let good = [
        parquet(Compression::UNCOMPRESSED, true),
        parquet(Compression::UNCOMPRESSED, false),
        parquet(Compression::SNAPPY, true),
        parquet(Compression::ZSTD(Default::default()), false),
        parquet(Compression::GZIP(Default::default()), false),
        parquet(Compression::LZ4_RAW, true),
    ];
    fuzz("x.parquet", Memory::DECOMPRESSED, &TABLE_PLACES, &good, read_table);
}

#[test]
fn arrow_data() {
    fuzz("x.arrow", Memory::DECOMPRESSED, &TABLE_PLACES, &arrow(false), read_table);
}

#[test]
fn arrow_stream_data() {
    fuzz("x.arrows", Memory::DECOMPRESSED, &TABLE_PLACES, &arrow(true), read_table);
}

#[test]
fn compressed_text() {
    let texts = ["name;a;b\nx;1;2\ny;3;4.5\n", "name\ta\nNA\t1\n\t-2e5\n"];
    let compressed = texts.map(str::as_bytes).map(|text| {
        let (mut gzip, mut bzip2) = (Vec::new(), Vec::new());
        flate2::read::GzEncoder::new(text, flate2::Compression::fast()).read_to_end(&mut gzip).unwrap();
        bzip2::read::BzEncoder::new(text, bzip2::Compression::fast()).read_to_end(&mut bzip2).unwrap();
        [gzip, bzip2, zstd::encode_all(text, 1).unwrap()]
    });
    let good = [&[texts[0].into()], &compressed[0][..], &compressed[1]].concat();
    fuzz("x.csv.gz", Memory::DECOMPRESSED, &["line ", "column", "the compressed content"], &good, read_table);
}

fn read_data(path: &Path) -> io::Result<()> {
    let data = io::read_data(path)?;
    // Finite and not empty, or an error.
    let _ = data.samples();
    let (n, d) = data.dim();
    if path.extension().is_some_and(|e| e == "npy") {
        let file = DataFile::open(path)?;
        let rows = n.min(1)..n.min(3);
        assert_eq!((file.dim(), file.n_bytes(), file.dtype()), ((n, d), data.n_bytes(), data.dtype()));
        assert_eq!(file.rows(rows.clone())?.dim(), (rows.len(), d));
    }
    Ok(())
}

#[test]
fn npy_data() {
    let x = Array2::from_shape_fn((5, 3), |(i, j)| (i * 3 + j) as f64 / 2.0);
    let fortran = x.t().as_standard_layout().into_owned().reversed_axes();
    let good = [npy(&x), npy(&x.mapv(|v| v as f32)), npy(&fortran), swapped(&npy(&x)), npy(&x.column(0).to_owned())];
    fuzz("x.npy", Memory::per_byte(8), &NPY_PLACES, &good, read_data);
}

#[test]
fn npy_vectors() {
    let w = Array1::from_shape_fn(7, |i| i as f64 / 2.0);
    let column = w.clone().insert_axis(Axis(1));
    let good = [npy(&w), npy(&w.mapv(|v| v as f32)), npy(&column), swapped(&npy(&w)), npy(&column.mapv(|v| v as f32))];
    fuzz("w.npy", Memory::per_byte(16), &NPY_PLACES, &good, |path| io::read_vector(path).map(drop));
}

#[test]
fn csv_data() {
    let texts = ["a,b\n1,2\n3,4.5\n", "1e-3,-2\r\n\r\n\"3\",4\r\n", "\u{feff}x\n1\n2\n3\n", "0,1,2\n 1 , 2 ,\t3\n"];
    let good = texts.map(|text| text.as_bytes().to_vec());
    fuzz("x.csv", Memory::per_byte(32), &["line ", "columns "], &good, read_data);
}

fn mixture(covariance_type: CovarianceType) -> Mixture {
    let means = Array2::from_shape_vec((2, 2), vec![0.1 + 0.2, 1e30, -5e-324, -0.0]).unwrap();
    let covariances = match covariance_type {
        CovarianceType::Full => vec![1.0 / 3.0, 0.1, 0.1, 2.0, 1e30, 0.0, 0.0, 1e-30],
        CovarianceType::Spherical => vec![1e-300, 7e22],
        _ => vec![1.0 / 3.0, 0.1, 0.1, 2.0],
    };
    let covariances = Covariances::from_vec(covariance_type, 2, 2, covariances).unwrap();
    Mixture::new(Array1::from_vec(vec![0.25, 0.75]), means, covariances).unwrap()
}

/// Returns a table of models of groups, which are texts or numbers; one of them has no model.
fn group_models(covariance_type: CovarianceType, groups: Ids) -> Vec<u8> {
    let summary = FitSummary { converged: Some(true), n_iter: Some(3), lower_bound: Some(-1.5), ..Default::default() };
    let model = || Ok(Model::new(mixture(covariance_type), summary.clone()));
    let fits = [model(), Err("too few samples".into()), model()].map(|model| GroupFit { n_samples: 9, model });
    let file = tempfile::Builder::new().suffix(".parquet").tempfile().unwrap();
    let models = GroupModels { by: "who".into(), groups, fits: fits.to_vec() };
    GroupOutput::create(file.path()).unwrap().write(&models).unwrap();
    fs::read(file.path()).unwrap()
}

#[test]
fn group_model_tables() {
    let texts = || Ids::Texts(["a", "b", "c d"].map(|text| Some(text.into())).to_vec());
    let mut good: Vec<_> = CovarianceType::ALL.map(|covariance_type| group_models(covariance_type, texts())).into();
    good.push(group_models(CovarianceType::Diag, Ids::Integers([-3, 5, 70].map(Some).to_vec())));
    fuzz(
        "models.parquet",
        Memory::DECOMPRESSED,
        &["the file is damaged", "column", "the compression ", "group `"],
        &good,
        |path| {
            let models = GroupModels::read(path)?;
            assert_eq!(models.groups.len(), models.fits.len());
            Ok(())
        },
    );
}

fn fit<M>(model: M, run: usize) -> Fit<M> {
    let mut fit = Fit::new(model);
    (fit.lower_bounds, fit.converged, fit.run, fit.retained) = (vec![-1.5, -1.0 / 3.0], true, run, vec![1]);
    fit
}

/// Returns a posterior whose means and covariances are those of [`mixture`].
fn posterior(t: CovarianceType, kind: WeightConcentrationPriorType) -> VariationalMixture {
    let (mixture, rows) = (mixture(t), if kind == WeightConcentrationPriorType::DirichletProcess { 2 } else { 1 });
    let of_prior: &[f64] = match t {
        CovarianceType::Full | CovarianceType::Tied => &[2.0, -0.1, -0.1, 1e-3],
        CovarianceType::Diag => &[1e30, 1.0 / 3.0],
        _ => &[7e22],
    };
    let covariance = Covariances::from_vec(t, 1, 2, of_prior.to_vec()).unwrap();
    let prior = VariationalPrior::new(kind, 1e-3, 0.5, Array1::from_vec(vec![-0.0, 1e30]), 1.5, covariance).unwrap();
    let concentration = Array2::from_shape_fn((rows, 2), |(i, c)| 0.1 + 40.0 * i as f64 + c as f64);
    let (beta, nu) = (Array1::from_vec(vec![0.5, 1e5]), Array1::from_vec(vec![2.75, 2.75]));
    let (means, covariances) = (mixture.means().to_owned(), mixture.covariances().clone());
    VariationalMixture::new(prior, concentration, beta, nu, means, covariances).unwrap()
}

fn posteriors() -> impl Iterator<Item = VariationalMixture> {
    let kinds = |t| WeightConcentrationPriorType::ALL.map(|kind| posterior(t, kind));
    CovarianceType::ALL.into_iter().flat_map(kinds)
}

fn written(name: &str, write: impl FnOnce(&Path)) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    write(&path);
    fs::read(path).unwrap()
}

/// Reads a model, and checks that it survives writing and reading.
fn read_model(path: &Path) -> io::Result<()> {
    let (model, _): (Mixture, _) = io::read_model_with_summary(path)?;
    assert_eq!(io::read_model(path).unwrap(), model);
    assert_eq!(io::parse_model(&io::model_to_json(&model)).unwrap(), model);
    Ok(())
}

fn read_posterior(path: &Path) -> io::Result<()> {
    let (posterior, summary) = io::read_model_with_summary::<VariationalMixture>(path)?;
    let mut again = None;
    written(path.file_name().unwrap().to_str().unwrap(), |path| {
        let output = ModelOutput::create(path).unwrap();
        // The weights of its mean may leave the range of numbers; a posterior that is written must survive.
        if output.write_with_summary(&posterior, &summary).is_ok() {
            again = Some(io::read_model_with_summary::<VariationalMixture>(path).unwrap().0);
        } else {
            fs::write(path, []).unwrap();
        }
    });
    assert!(again.is_none_or(|again| again == posterior));
    Ok(())
}

/// The places that errors in a model name.
const MODEL_PLACES: [&str; 12] = [
    "line ",
    "component ",
    "weight",
    "means",
    "covariance",
    "version",
    "counted from 0",
    "byte ",
    "precisions",
    "n_iter",
    "lower_bound",
    "converged",
];

/// Further places that errors in a posterior name.
const POSTERIOR_PLACES: [&str; 6] =
    ["posterior", "concentration", "mean_precision", "degrees_of_freedom", "prior", "variational"];

#[test]
fn json_models() {
    let good = CovarianceType::ALL
        .map(|t| written("m.json", |p| ModelOutput::create(p).unwrap().write_fit(&fit(mixture(t), 0)).unwrap()));
    fuzz("m.json", Memory::per_byte(64), &MODEL_PLACES, &good, read_model);
}

fn posterior_files(name: &str) -> Vec<Vec<u8>> {
    let summary = FitSummary { lower_bounds: Some(vec![-1.5, -0.5]), ..Default::default() };
    let output = |path: &Path| ModelOutput::create(path).unwrap();
    let file = |posterior| written(name, |path| output(path).write_with_summary(&posterior, &summary).unwrap());
    posteriors().map(file).collect()
}

#[test]
fn json_posteriors() {
    let places = [&MODEL_PLACES[..], &POSTERIOR_PLACES].concat();
    fuzz("m.json", Memory::per_byte(64), &places, &posterior_files("m.json"), read_posterior);
}

#[test]
fn npz_posteriors() {
    let places = [&MODEL_PLACES[..], &POSTERIOR_PLACES, &NPZ_PLACES].concat();
    fuzz("m.npz", Memory::ARCHIVED, &places, &posterior_files("m.npz"), read_posterior);
}

fn read_checkpoints<M: ModelInFile + Clone>(models: impl Iterator<Item = M>, places: &[&str]) {
    let file = |model: M| {
        let made_with =
            Identity::default().with("data", "12345 × 2").with("reg-covar", 1e-6).with("init", None::<String>);
        let (present, best) = (fit(model.clone(), 1), Some(fit(model, 0)));
        let checkpoint = Checkpoint { made_with, present, best, feature_names: Some(vec!["a".into(), "b".into()]) };
        written("c.json", |path| CheckpointOutput::create(path).unwrap().write(&checkpoint).unwrap())
    };
    let good: Vec<Vec<u8>> = models.map(file).collect();
    fuzz("c.json", Memory::per_byte(64), places, &good, |path| {
        let present = io::read_checkpoint::<M>(path)?.present;
        if let Ok((mixture, _)) = present.mixture.parts() {
            assert!(present.retained.iter().all(|&c| c < mixture.n_components()));
        }
        Ok(())
    });
}

#[test]
fn variational_checkpoints() {
    read_checkpoints(posteriors(), &[&MODEL_PLACES[..], &POSTERIOR_PLACES].concat());
}

#[test]
fn checkpoints() {
    read_checkpoints(CovarianceType::ALL.into_iter().map(mixture), &MODEL_PLACES);
}

type Members = Vec<(String, Vec<u8>)>;

fn members(archive: &[u8]) -> Members {
    let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut all = Vec::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        all.push((entry.name().to_string(), bytes));
    }
    all
}

fn archive(members: &Members, method: CompressionMethod) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in members {
        archive.start_file(name.as_str(), options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// Returns an archive with changed bytes, or a good archive whose members have changes: checksums hide most changes of
/// bytes.
fn archive_input(rng: &mut ChaCha8Rng, good: &[Vec<u8>], good_members: &[Members]) -> Vec<u8> {
    if rng.random() {
        return mutation::input(rng, good);
    }
    let mut all = good_members[rng.random_range(0..good_members.len())].clone();
    for _ in 0..rng.random_range(1..=3) {
        let at = rng.random_range(0..all.len());
        match rng.random_range(0..8) {
            0 => drop(all.remove(at)),
            1 => all[at].0 = format!("{}.npy", rng.next_u32()),
            _ => {
                let others: Vec<Vec<u8>> = all.iter().map(|(_, bytes)| bytes.clone()).collect();
                mutation::change(rng, &mut all[at].1, &others);
            }
        }
        if all.is_empty() {
            break;
        }
    }
    archive(&all, if rng.random() { CompressionMethod::Stored } else { CompressionMethod::Deflated })
}

/// Returns the memory for claimed members: `zip` reserves up to 256 bytes for each member that an end record claims, at
/// most 65,535 members or 16 MB, before it reads them.
fn memory_for_claimed_members(bytes: &[u8]) -> u64 {
    let records = bytes.windows(12).filter(|record| record.starts_with(b"PK\x05\x06"));
    // On this disk, and in all.
    let claimed = |record: &[u8]| [8, 10].map(|at| u64::from(u16::from_le_bytes([record[at], record[at + 1]])));
    256 * records.flat_map(claimed).max().unwrap_or(0)
}

/// Further places that errors in an archive name.
const NPZ_PLACES: [&str; 5] = ["the .npz has ", "`: ", "not a .npz file", "not a usable .npz file", "checksum"];

#[test]
fn npz_models() {
    let good: Vec<Vec<u8>> = CovarianceType::ALL
        .into_iter()
        .flat_map(|t| {
            let stored = written("m.npz", |p| ModelOutput::create(p).unwrap().write_fit(&fit(mixture(t), 0)).unwrap());
            let deflated = archive(&members(&stored), CompressionMethod::Deflated);
            [stored, deflated]
        })
        .collect();
    fuzz("m.npz", Memory::ARCHIVED, &[&MODEL_PLACES[..], &NPZ_PLACES].concat(), &good, read_model);
}
