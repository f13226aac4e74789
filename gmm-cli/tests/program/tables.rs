//! Tables with named columns: every format gives the same samples, names travel with models, and damaged files are
//! errors.
use crate::common::*;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch,
    StringArray, UInt8Array,
};
use flate2::write::GzEncoder;
use gaussmix::data::Samples;
use gaussmix::evaluator::{Evaluator, ReferenceEvaluator};
use ndarray::Array2;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

const NAMES: [&str; 4] = ["sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm"];

type Columns = Vec<(String, ArrayRef)>;

/// Returns a column of numbers, then those of iris in a different order with a column of texts between them.
fn table(x: &Array2<f64>) -> Columns {
    let column = |j: usize| -> (String, ArrayRef) {
        (NAMES[j].into(), Arc::new(Float64Array::from_iter_values(x.column(j).iter().copied())))
    };
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values((0..x.nrows() as i64).map(|i| 1000 + 7 * i)));
    let species = (0..x.nrows()).map(|i| if i % 3 == 1 { None } else { Some(format!("no {}, \"{}\"", i / 50, i % 2)) });
    let species: ArrayRef = Arc::new(StringArray::from_iter(species));
    vec![("id".into(), id), column(2), column(0), ("species".into(), species), column(3), column(1)]
}

fn batch(columns: &Columns) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(name, column)| (name, column.clone(), true))).unwrap()
}

fn write_parquet(path: &Path, columns: &Columns, compression: Compression, group: usize) {
    let properties = WriterProperties::builder().set_compression(compression).set_max_row_group_row_count(Some(group));
    let properties = properties.set_data_page_row_count_limit(16).set_write_batch_size(16).build();
    fs::write(path, parquet(&batch(columns), Some(properties))).unwrap();
}

fn write_arrow(path: &Path, columns: &Columns, compression: Option<arrow_ipc::CompressionType>, rows: usize) {
    let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let batch = batch(columns);
    let file = fs::File::create(path).unwrap();
    let writer = arrow_ipc::writer::FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    write_batches(writer, &batch, rows);
}

/// Returns the table as a stream of Arrow IPC, in batches of 40 rows.
fn arrow_stream(columns: &Columns, compression: Option<arrow_ipc::CompressionType>) -> Vec<u8> {
    let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let batch = batch(columns);
    let mut bytes = Vec::new();
    let writer = arrow_ipc::writer::StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
    write_batches(writer, &batch, 40);
    bytes
}

fn text(columns: &Columns, separator: &str) -> String {
    let batch = batch(columns);
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let mut text = names.join(separator) + "\n";
    for i in 0..batch.num_rows() {
        let field = |column: &ArrayRef| {
            let any = column.as_any();
            any.downcast_ref::<Float64Array>()
                .map(|c| c.value(i).to_string())
                .or_else(|| any.downcast_ref::<Int64Array>().map(|c| c.value(i).to_string()))
                .or_else(|| any.downcast_ref::<StringArray>().map(|c| quoted(c.value(i))))
                .unwrap()
        };
        text += &(columns.iter().map(|(_, column)| field(column)).collect::<Vec<_>>().join(separator) + "\n");
    }
    text
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Writes the table in every format and returns the names of the files.
fn write_all(folder: &Folder, columns: &Columns) -> Vec<String> {
    for (name, compression) in [
        ("none.parquet", Compression::UNCOMPRESSED),
        ("snappy.parquet", Compression::SNAPPY),
        ("gzip.pq", Compression::GZIP(Default::default())),
        ("zstd.parquet", Compression::ZSTD(ZstdLevel::default())),
        ("lz4.parquet", Compression::LZ4_RAW),
    ] {
        write_parquet(&folder.path(name), columns, compression, 41);
    }
    let (lz4, zstd) = (Some(arrow_ipc::CompressionType::LZ4_FRAME), Some(arrow_ipc::CompressionType::ZSTD));
    write_arrow(&folder.path("x.arrow"), columns, None, 40);
    write_arrow(&folder.path("lz4.feather"), columns, lz4, 40);
    write_arrow(&folder.path("zstd.ipc"), columns, zstd, 150);
    let stream = arrow_stream(columns, None);
    folder.write("stream.arrow", &stream);
    // Without the optional mark at the end of a stream.
    folder.write("x.arrows", &stream[..stream.len() - 8]);
    folder.write("x.arrows.gz", gzip(&stream));
    folder.write("lz4.arrows", arrow_stream(columns, lz4));
    folder.write("zstd.arrows", arrow_stream(columns, zstd));
    let csv = text(columns, ",");
    folder.write("x.csv", &csv);
    folder.write("semicolons.csv", text(columns, ";"));
    folder.write("bars.txt", text(columns, "|"));
    folder.write("x.tsv", text(columns, "\t"));
    // Two members, as `cat a.gz b.gz` makes them.
    let (first, second) = csv.as_bytes().split_at(1000);
    folder.write("x.csv.gz", [gzip(first), gzip(second)].concat());
    folder.write("x.tsv.zst", zstd::encode_all(text(columns, "\t").as_bytes(), 3).unwrap());
    let of_table = |name: &String| !name.ends_with(".npy") && !name.ends_with(".json");
    let names: Vec<String> = folder.names().into_iter().filter(of_table).collect();
    assert_eq!(names.len(), 19, "{names:?}");
    names
}

/// All formats give the same bits, at once and in chunks, whatever the order of the columns.
#[test]
fn every_format_gives_the_same_model() {
    let folder = folder();
    let x = iris();
    folder.save("x.npy", &x);
    let columns = NAMES.join(",");
    let model = |args: &str| {
        let report = folder.fit(format!("-k 3 --device cpu -o m.json {args}"));
        let text = folder.text("m.json");
        (report["device"].as_str().unwrap().to_string(), text)
    };
    // A row needs at least 3 numbers of 8 bytes for each of 4 features; 960 bytes hold chunks of ten rows.
    let (whole, chunked) = (model("x.npy").1, model("x.npy --memory 960"));
    assert!(chunked.0.contains("in 15 chunks"), "{}", chunked.0);
    let names = format!("\"feature_names\": [\"{}\"],\n", NAMES.join("\", \""));
    for name in write_all(&folder, &table(&x)) {
        let (_, text) = model(&format!("{name} --columns {columns}"));
        assert!(text.contains(&names), "{text}");
        assert_eq!(text.replace(&names, ""), whole, "{name}");
        let (device, text) = model(&format!("{name} --columns {columns} --memory 960"));
        assert!(device.contains("in 15 chunks"), "{name}: {device}");
        assert_eq!(text.replace(&names, ""), chunked.1, "{name} in chunks");
    }
}

#[test]
fn columns_are_matched_by_name() {
    let folder = folder();
    let x = iris();
    let files = write_all(&folder, &table(&x));
    folder.run("fit data/iris.csv -k 3 -o m.json --plot p.svg");
    let svg = folder.text("p.svg");
    assert!(NAMES.iter().any(|name| svg.contains(name)) && !svg.contains(" z2"), "names on the axes");
    folder.run("convert m.json m.npz");
    folder.run("predict m.npz data/iris.csv -o wanted.csv");
    let wanted = folder.text("wanted.csv");
    for name in files {
        for memory in ["1M", "960"] {
            let note = folder.notes(format!("predict m.npz {name} --memory {memory} --id id -o got.csv"));
            assert!(note.contains("are left out: species\n"), "{note}");
            let got = folder.text("got.csv");
            let expected = wanted.lines().enumerate().map(|(i, line)| match i {
                0 => format!("id,{line}\n"),
                i => format!("{},{line}\n", 1000 + 7 * (i - 1)),
            });
            assert_eq!(got, expected.collect::<String>(), "{name}");
        }
    }
    // Without names the order is that of the model.
    folder.save("x.npy", &x);
    folder.run("predict m.json x.npy -o got.csv");
    assert_eq!(folder.text("got.csv"), wanted);
    folder.run("sample m.json -n 2 -o new.csv");
    assert!(folder.text("new.csv").starts_with(&(NAMES.join(",") + "\n")));
    let missing = &["x.parquet: the model was fitted to columns that are missing here: ", NAMES[0], NAMES[3]];
    let some: Columns = table(&x).into_iter().filter(|(name, _)| name != NAMES[0] && name != NAMES[3]).collect();
    write_parquet(&folder.path("x.parquet"), &some, Compression::SNAPPY, 50);
    folder.refused("score m.json x.parquet", missing);
    folder.write("few.csv", "a,b\n1,2\n");
    folder.refused("fit few.csv --init m.json", &["few.csv: ", "missing here: ", "are a, b"]);
}

#[test]
fn identifiers_stand_beside_results() {
    let folder = folder();
    let x = iris();
    write_all(&folder, &table(&x));
    let columns = NAMES.join(",");
    folder.run(format!("fit x.csv --columns {columns} -k 2 -o m.json"));
    // To Parquet and back: numbers keep their type, texts with separators and quotes survive, and a null stays a null.
    for (source, id) in [
        ("x.arrow", "id"),
        ("lz4.arrows", "species"),
        ("snappy.parquet", "species"),
        ("x.csv", "species"),
        ("x.csv.gz", "id"),
    ] {
        for memory in ["1M", "960"] {
            let run = |out: &str| {
                folder.run(format!("score m.json {source} --memory {memory} --id {id} --per-sample {out}"));
            };
            run("s.parquet");
            run("s.csv");
            let file = fs::File::open(folder.path("s.parquet")).unwrap();
            let read = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let batches: Vec<RecordBatch> = read.build().unwrap().map(Result::unwrap).collect();
            let names: Vec<String> = batches[0].schema().fields().iter().map(|f| f.name().clone()).collect();
            assert_eq!(names, [id, "log_likelihood"]);
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 150);
            let ids = batches[0].column(0).as_any();
            match ids.downcast_ref::<Int64Array>() {
                Some(ids) => assert_eq!((source, id, ids.value(149)), ("x.arrow", "id", 1000 + 7 * 149)),
                None => {
                    let ids = ids.downcast_ref::<StringArray>().unwrap();
                    let first = if id == "id" { "1000" } else { "no 0, \"0\"" };
                    assert_eq!(ids.value(0), first);
                    assert_eq!(arrow_array::Array::is_null(ids, 1), id == "species", "{source}");
                }
            }
            let mut csv = csv::Reader::from_path(folder.path("s.csv")).unwrap();
            let rows: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
            assert_eq!((rows.len(), &rows[0][0]), (150, if id == "id" { "1000" } else { "no 0, \"0\"" }));
            if id == "species" {
                assert_eq!(&rows[1][0], "");
            }
        }
    }
    folder.refused("predict m.json x.csv --id id -o new.npy", &["new.npy: a .npy has no place for the column of --id"]);
    folder.refused(
        "predict m.json x.csv --id name -o new.csv",
        &["x.csv: --id: there is no column `name`; there are id, "],
    );
    folder.write("named.csv", folder.text("x.csv").replacen("id", "component", 1));
    folder.refused(
        "predict m.json named.csv --id component -o new.parquet",
        &["new.parquet: the kept column cannot be called `component`", "rename it"],
    );
}

#[test]
fn several_files_are_one_data_set() {
    let folder = folder();
    let x = iris();
    let all = table(&x);
    let part = |rows: std::ops::Range<usize>| -> Columns {
        all.iter().map(|(name, column)| (name.clone(), column.slice(rows.start, rows.len()))).collect()
    };
    fs::create_dir(folder.path("parts")).unwrap();
    write_parquet(&folder.path("parts/a.parquet"), &part(0..70), Compression::SNAPPY, 30);
    write_arrow(&folder.path("parts/b.arrow"), &part(70..71), None, 10);
    let reversed: Columns = part(71..150).into_iter().rev().collect();
    folder.write("parts/c.csv.gz", gzip(text(&reversed, ";").as_bytes()));
    folder.write("parts/_SUCCESS", "");
    folder.write("parts/.a.parquet.crc", "x");
    write_parquet(&folder.path("whole.parquet"), &all, Compression::SNAPPY, 150);
    let columns = NAMES.join(",");
    let parts = "parts/a.parquet parts/b.arrow parts/c.csv.gz";
    for memory in ["1M", "960"] {
        let model = |data: &str| {
            folder.fit(format!("{data} -k 2 --device cpu --columns {columns} --memory {memory} -o m.json"));
            folder.text("m.json")
        };
        let whole = model("whole.parquet");
        assert_eq!(model("parts"), whole, "{memory}");
        assert_eq!(model(parts), whole, "{memory}");
    }
    let results = |name: &str, data: &str| {
        folder.run(format!("predict m.json --id id --memory 960 -o {name} {data}"));
        folder.text(name)
    };
    assert_eq!(results("a.csv", "parts"), results("b.csv", "whole.parquet"));
    folder.run("predict m.json --id id --memory 960 -o a.parquet parts");
    // A description is not a part.
    folder.write("parts/README.txt", "one table in three parts");
    assert_eq!(results("c.csv", "parts"), results("b.csv", "whole.parquet"));
    // Errors name the file and the row in it.
    let bad = text(&part(71..80), ",").replace(&format!("\n{},", 1000 + 7 * 73), "\n,");
    folder.write("parts/d.csv", bad);
    let score = |args: &str, message: &[&str]| folder.refused(format!("score m.json {args}"), message);
    let numbers = format!("id,{columns}");
    folder.write("numbers.csv", folder.text("parts/d.csv"));
    folder.refused(
        format!("fit whole.parquet numbers.csv -k 2 --columns {numbers}"),
        &["numbers.csv: column `id`: ", "NaN at row 2, column 0"],
    );
    folder.write("parts/e.csv", "id,sepal_length_cm\n1,2\n");
    score("parts", &["parts/e.csv: the first file has columns that are missing here: sepal_width_cm, petal"]);
    folder.write("parts/e.csv", "1,2\n");
    score("parts", &["parts/e.csv: it has 2 columns, the first file has 4"]);
    fs::create_dir(folder.path("empty")).unwrap();
    score("empty", &["empty: a folder without a file whose name ends in "]);
    folder.refused("predict m.json parts -o parts/z.csv", &["parts/z.csv: lies in a folder that is an input"]);
}

/// Folders in a folder, as Spark, Hive and Arrow write a data set in partitions.
#[test]
fn subfolders_are_parts() {
    let folder = folder();
    let all = table(&iris());
    let part = |rows: std::ops::Range<usize>| -> Columns {
        all.iter().map(|(name, column)| (name.clone(), column.slice(rows.start, rows.len()))).collect()
    };
    for name in ["set/year=2020", "set/year=2021/month=1", "set/year=2021/_old", "set/.git", "set/year=2022.parquet"] {
        fs::create_dir_all(folder.path(name)).unwrap();
    }
    write_parquet(&folder.path("set/a.parquet"), &part(0..10), Compression::SNAPPY, 30);
    write_parquet(&folder.path("set/year=2020/part-0.parquet"), &part(10..50), Compression::SNAPPY, 30);
    write_arrow(&folder.path("set/year=2021/month=1/part-0.arrow"), &part(50..60), None, 10);
    write_parquet(&folder.path("set/year=2021/part-1.parquet"), &part(60..100), Compression::SNAPPY, 30);
    write_parquet(&folder.path("set/year=2022.parquet/part-0.parquet"), &part(100..149), Compression::SNAPPY, 30);
    write_parquet(&folder.path("set/z.parquet"), &part(149..150), Compression::SNAPPY, 30);
    // Neither hidden files nor links to folders are parts.
    folder.write("set/year=2021/_old/x.csv", "1,2\n");
    folder.write("set/.git/x.csv", "1,2\n");
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path("set"), folder.path("set/year=2020/again")).unwrap();
    write_parquet(&folder.path("whole.parquet"), &all, Compression::SNAPPY, 150);
    folder.fit(["whole.parquet", "-k", "2", "--columns", &NAMES.join(","), "-o", "m.json"]);
    let results = |name: &str, data: &str, memory: &str| {
        folder.run(format!("predict m.json {data} --id id --memory {memory} -o {name}"));
        folder.text(name)
    };
    let whole = results("whole.csv", "whole.parquet", "1M");
    for memory in ["1M", "960"] {
        assert_eq!(results("parts.csv", "set", memory), whole);
    }
    folder.refused("predict m.json set -o set/year=2020/z.csv", &["z.csv: lies in a folder that is an input"]);
    fs::create_dir_all(folder.path("empty/empty")).unwrap();
    folder.refused("score m.json empty", &["empty: a folder without a file whose name ends in "]);
    folder.write("set/year=2020/x.csv", "1,2\n");
    folder.refused("score m.json set", &["set/year=2020/x.csv: it has 2 columns"]);
}

#[test]
fn decimals_may_have_a_comma() {
    let folder = folder();
    let with_points = text(&table(&iris()).into_iter().filter(|(name, _)| name != "species").collect(), ";");
    folder.write("points.csv", &with_points);
    let (head, rows) = with_points.split_once('\n').unwrap();
    let commas = rows.replace('.', ",");
    folder.write("commas.csv", format!("{head}\n{commas}"));
    folder.write("no_names.txt", commas.replace(';', " "));
    let model = |args: &str| {
        folder.fit(format!("-k 2 --device cpu -o m.json {args}"));
        folder.model("m.json")
    };
    let wanted = model("points.csv");
    assert_eq!(model("commas.csv"), wanted);
    assert_eq!(model("commas.csv --decimal , --memory 1500"), model("points.csv --memory 1500"));
    assert_eq!(model("no_names.txt"), wanted);
    // Beyond the first lines, and in unclear cases.
    folder.write("late.csv", format!("{head}\n{}1;1.5;2;3;4\n", &commas));
    let late = |more: &str, message: &[&str]| {
        folder.refused(format!("fit late.csv -k 2 {more}"), message);
    };
    late("", &["line 2, column 1", "`1,4`", "decimals have a point", "--decimal , says otherwise"]);
    late("--decimal ,", &["line 152, column 1", "`1.5`", "decimals have a comma here", "--decimal ."]);
    late("--decimal .", &["line 2, column 1", "`1,4`", "decimals have a point"]);
    assert!(folder.fails(2, "fit late.csv -k 2 --decimal x").contains("use . or ,"));
}

#[test]
fn standard_input() {
    let folder = folder();
    let x = points();
    folder.write("m.json", MODEL);
    let (wanted, _) = reference(&gaussmix::io::Data::F64(x.clone()), &mixture());
    let rows = x.outer_iter().map(|row| row.iter().map(f64::to_string).collect::<Vec<_>>().join(" ") + "\n");
    let lines: String = rows.collect();
    let array = npy("'<f8'", false, "(7, 3)", &bytes(&x, false, f64::to_le_bytes));
    let column = |j: usize| -> (String, ArrayRef) {
        (format!("x{j}"), Arc::new(Float64Array::from_iter_values(x.column(j).iter().copied())))
    };
    let stream = arrow_stream(&(0..3).map(column).collect(), None);
    let compressed = [gzip(lines.as_bytes()), zstd::encode_all(&array[..], 1).unwrap(), gzip(&array), gzip(&stream)];
    for input in [lines.clone().into_bytes(), array.clone(), stream.clone()].into_iter().chain(compressed) {
        let report = json(folder.gmm("score m.json - --json").write_stdin(input));
        assert_eq!((number(&report, "n"), number(&report, "d")), (7.0, 3.0));
        // Both are in float64, with sums of seven terms in a different order.
        approx::assert_relative_eq!(number(&report, "log_likelihood"), wanted, max_relative = 1e-12);
    }
    let failed = |args: &str, input: &[u8], message: &[&str]| {
        let run = folder.gmm(format!("score m.json {args}")).write_stdin(input).assert().code(1);
        assert_has(&String::from_utf8_lossy(&run.get_output().stderr), message);
    };
    failed("- --memory 300", lines.as_bytes(), &["standard input: a stream is read once", "--memory"]);
    failed("- -", lines.as_bytes(), &["only once"]);
    failed("-", b"1,2,3\n1,two,3\n", &["-: line 2, column 1"]);
    failed("-", b"PAR1xxxx", &["cannot be read as a stream"]);
    failed("-", &stream[..stream.len() - 12], &["-: the file is damaged"]);
    failed("- --memory 300", &stream, &["a stream is read once"]);
    failed("-", &array[..array.len() - 8], &["-: an array of shape [7, 3]"]);
    let cut = gzip(lines.as_bytes());
    failed("-", &cut[..cut.len() - 12], &["damaged or cut short"]);
}

/// Every type of number, and types that are not numbers.
#[test]
fn types_of_columns() {
    let folder = folder();
    let small: ArrayRef = Arc::new(UInt8Array::from(vec![0, 1, 2, 255, 4, 5]));
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, true, false, false]));
    let halves: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5, -99.9, 3.5, 4.5, 1e30]));
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![1, 2, 3, 4, 5, 6]));
    let money = Decimal128Array::from(vec![100, 250, 399, 1, 2, 3]).with_precision_and_scale(10, 2).unwrap();
    let gaps: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(2.0), Some(1.0), None, Some(3.0)]));
    let all: Columns = [
        ("small", small),
        ("flags", flags),
        ("halves", halves),
        ("dates", dates),
        ("money", Arc::new(money)),
        ("gaps", gaps),
    ]
    .map(|(name, column)| (name.to_string(), column))
    .into();
    write_parquet(&folder.path("x.parquet"), &all, Compression::SNAPPY, 4);
    write_arrow(&folder.path("x.arrow"), &all, None, 4);
    for name in ["x.parquet", "x.arrow"] {
        let read = |columns: &[&str]| {
            let columns = columns.iter().map(|c| c.to_string()).collect();
            let na_values = vec!["-99.9".into()];
            let selection = gaussmix::io::ColumnSelection { columns, na_values, ..Default::default() };
            gaussmix::io::Table::open(&[folder.path(name)], &selection).unwrap().read().unwrap().data
        };
        let gaussmix::io::Data::F64(x) = read(&["small", "flags", "halves"]) else { panic!("float64") };
        assert_eq!(x.row(3).to_vec(), [255.0, 1.0, 3.5]);
        assert!(x[[2, 2]].is_nan());
        let gaussmix::io::Data::F32(x) = read(&["halves"]) else { panic!("float32") };
        assert_eq!(x[[5, 0]], 1e30);
        let gaussmix::io::Data::F64(x) = read(&["gaps"]) else { panic!("float64") };
        assert_eq!(x.iter().map(|v| v.is_nan()).collect::<Vec<_>>(), [false, true, false, false, true, false]);
        let message = [name, "column `dates` holds dates", "column `money` holds decimals", "--drop dates,money"];
        folder.refused(format!("fit {name} -k 2"), &message);
        folder.refused(
            format!("fit {name} -k 2 --columns small,gaps"),
            &[name, "column `gaps`", "NaN at row 1, column 5"],
        );
        folder.refused(
            format!("fit {name} -k 2 --columns small,larger"),
            &["--columns: there is no column `larger`; there are small, flags, halves"],
        );
    }
}

#[test]
fn damaged_tables_are_named() {
    let folder = folder();
    let x = iris();
    folder.write("m.json", MODEL);
    write_all(&folder, &table(&x));
    let score = |name: &str, message: &[&str]| folder.refused(format!("score m.json {name}"), message);
    for name in ["snappy.parquet", "x.arrow", "stream.arrow", "lz4.arrows"] {
        let whole = folder.bytes(name);
        for length in [0, 3, 20, whole.len() / 2, whole.len() - 1] {
            folder.write(name, &whole[..length]);
            score(name, &[&format!("{name}: ")]);
        }
    }
    let none: Columns = table(&x).into_iter().map(|(name, column)| (name, column.slice(0, 0))).collect();
    write_parquet(&folder.path("none.parquet"), &none, Compression::SNAPPY, 10);
    write_arrow(&folder.path("none.arrow"), &none, None, 10);
    folder.write("none.arrows", arrow_stream(&none, None));
    for name in ["none.parquet", "none.arrow", "none.arrows"] {
        folder.refused(format!("fit {name} -k 1 --drop species"), &[name, "0 rows and 5 columns"]);
    }
    folder.write("v1.feather", "FEA1........FEA1");
    score("v1.feather", &["v1.feather: Feather of version 1", "version 2"]);
    let whole = folder.bytes("x.csv.gz");
    folder.write("x.csv.gz", &whole[..whole.len() - 20]);
    score("x.csv.gz", &["x.csv.gz: the compressed content is damaged or cut short"]);
    score("x.parquet.gz", &["x.parquet.gz: ", "No such file"]);
}

#[test]
fn tables_that_change_are_named_as_the_cause() {
    use gaussmix::io::{ColumnSelection, Problem, Table};
    let folder = folder();
    for name in write_all(&folder, &table(&iris())) {
        let path = folder.path(name);
        let selection = ColumnSelection { drop: vec!["species".into()], ..ColumnSelection::default() };
        let file = Table::open(&[&path], &selection).unwrap().into_file(&mut |_| {}).unwrap();
        let (first, again) = (file.rows(10..20).unwrap(), file.rows(10..20).unwrap());
        assert_eq!(format!("{first:?}"), format!("{again:?}"));
        let mut bytes = fs::read(&path).unwrap();
        bytes.push(b'1');
        fs::write(&path, bytes).unwrap();
        for rows in [20..30, 0..10] {
            let error = file.rows(rows).unwrap_err();
            assert!(matches!(error.problem, Problem::Changed), "{error}");
            assert_eq!(error.path, path);
        }
    }
}

/// The numbers take 62 MB, in row groups that all exceed the process's memory limit.
#[cfg(target_os = "linux")]
#[test]
fn parquet_larger_than_memory_is_scored_and_labelled_in_chunks() {
    let folder = folder();
    folder.write("m.json", MODEL);
    let (rows, repeats) = (4000, 650);
    let pattern = Array2::from_shape_fn((rows, 3), |(i, j)| ((i * 37 + j * 11) % 101) as f64 / 50.0 - 1.0);
    let column = |j: usize| -> (String, ArrayRef) {
        (format!("x{j}"), Arc::new(Float64Array::from_iter_values(pattern.column(j).iter().copied())))
    };
    let batch = batch(&(0..3).map(column).collect());
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows * 400)).build();
    let file = fs::File::create(folder.path("x.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    (0..repeats).for_each(|_| writer.write(&batch).unwrap());
    writer.close().unwrap();
    // The limit of 48 MiB is on anonymous memory.
    let go = |args: &str| folder.limited("-d 49152", format!("score m.json x.parquet {args}"));
    assert!(!go("--device cpu --memory 1G").status.success(), "the limit does not bite");
    let run = go("--memory 15M --json --per-sample s.npy --columns x0,x1,x2");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let labels = ReferenceEvaluator::new(Samples::from_f64(pattern.view()).unwrap()).predict(&mixture()).unwrap();
    let (total, scores) = reference(&gaussmix::io::Data::F64(pattern), &mixture());
    // Both in float64.
    approx::assert_relative_eq!(number(&report, "mean_log_likelihood"), total / rows as f64, max_relative = 1e-10);
    let read: ndarray::Array1<f64> = ndarray_npy::read_npy(folder.path("s.npy")).unwrap();
    assert_eq!(read.len(), rows * repeats);
    for (i, &v) in read.iter().enumerate() {
        approx::assert_relative_eq!(v, scores[i % rows], max_relative = 1e-10);
    }
    let run = folder.limited("-d 49152", "predict m.json x.parquet --memory 15M --columns x0,x1,x2 -o k.npy");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let read: ndarray::Array1<i64> = ndarray_npy::read_npy(folder.path("k.npy")).unwrap();
    assert_eq!(read.len(), rows * repeats);
    assert!(read.iter().enumerate().all(|(i, &label)| label as usize == labels[i % rows]));
}
