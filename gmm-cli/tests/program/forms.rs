//! Forms of files that other programs write: element types of arrays, and variants of text.
use crate::common::*;
use flate2::write::GzEncoder;
use gaussmix::io::{self, ColumnSelection, Data, Problem, Table};
use gaussmix::{Error, Interrupt};
use ndarray::{Array2, arr2};
use std::fs;
use std::io::Write;
use zip::CompressionMethod;

/// Returns the values of a file with this content, its names, and the remarks on it.
#[track_caller]
fn read(name: &str, content: impl AsRef<[u8]>) -> (Array2<f64>, Option<Vec<String>>, Vec<String>) {
    read_with(name, content, &ColumnSelection::default())
}

#[track_caller]
fn read_with(
    name: &str,
    content: impl AsRef<[u8]>,
    selection: &ColumnSelection,
) -> (Array2<f64>, Option<Vec<String>>, Vec<String>) {
    let folder = folder();
    let path = folder.path(name);
    fs::write(&path, content).unwrap();
    let table = Table::open(&[&path], selection).unwrap();
    let Data::F64(values) = table.read().unwrap().data else { panic!("float64") };
    let (names, remarks) = (table.names().map(<[String]>::to_vec), table.remarks());
    let file = table.into_file(&mut |_| {}).unwrap();
    let Data::F64(rows) = file.rows(0..file.dim().0).unwrap() else { panic!("float64") };
    assert_eq!(format!("{rows}"), format!("{values}"));
    (values, names, remarks)
}

/// Requires that a text is refused with a message, in a file and on standard input.
#[track_caller]
fn refused(text: impl AsRef<[u8]>, said: &[&str]) {
    let folder = folder();
    folder.write("x.csv", &text);
    folder.refused("fit x.csv -k 1", said);
    let run = folder.gmm("fit - -k 1").write_stdin(text.as_ref()).assert().code(1);
    let stderr = String::from_utf8_lossy(&run.get_output().stderr);
    said.iter().for_each(|part| assert_has(&stderr, &[part.trim_start_matches("x.csv: ")]));
}

/// Returns the notes on a text that is fitted.
#[track_caller]
fn notes(text: &str) -> String {
    let folder = folder();
    folder.write("x.csv", text);
    folder.notes("fit x.csv -k 1")
}

fn strings(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|&name| name.into()).collect())
}

fn utf16(text: &str, big_endian: bool) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(|unit: u16| if big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
}

/// The model of an array of integers is, bit for bit, that of the same numbers in float64.
#[test]
fn arrays_of_integers_are_fitted_as_their_numbers_are() {
    let folder = folder();
    let values: Vec<u8> = (0..90u32).map(|i| (i * i * 7 % 251) as u8).collect();
    let shape = "(30, 3)";
    let wide = |element: fn(u8) -> Vec<u8>| values.iter().flat_map(|&v| element(v)).collect::<Vec<u8>>();
    let model = |descr: &str, body: &[u8]| {
        folder.write("x.npy", npy(descr, false, shape, body));
        folder.fit("x.npy -k 2 -o m.json --device cpu");
        folder.bytes("m.json")
    };
    let expected = model("'<f8'", &wide(|v| f64::from(v).to_le_bytes().to_vec()));
    assert!(model("'|u1'", &values) == expected);
    assert!(model("'>i2'", &wide(|v| i16::from(v).to_be_bytes().to_vec())) == expected);
    assert!(model("'<i8'", &wide(|v| i64::from(v).to_le_bytes().to_vec())) == expected);
    // From standard input, compressed.
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&npy("'|u1'", false, shape, &values)).unwrap();
    folder.gmm("fit - -k 2 -o s.json --device cpu").write_stdin(encoder.finish().unwrap()).assert().success();
    assert!(folder.bytes("s.json") == expected);
    // Truth values, for which only some fits are defined, and float16.
    let truth: Vec<u8> = values.iter().map(|v| v & 1).collect();
    model("'|b1'", &truth);
    model("'<f2'", &wide(|v| half::f16::from_f32(f32::from(v)).to_le_bytes().to_vec()));
}

#[test]
fn a_model_in_npz_may_have_integers() {
    let folder = folder();
    let path = folder.path("m.npz");
    let text: Vec<u8> = "diag".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let members = [
        ("covariance_type.npy", npy("'<U4'", false, "()", &text)),
        ("weights_.npy", npy("'<f2'", false, "(2,)", &[0x00, 0x38, 0x00, 0x38])),
        ("means_.npy", npy("'>i2'", false, "(2, 2)", &[0, 1, 0xff, 0xfe, 0, 3, 1, 0])),
        ("covariances_.npy", npy("'|u1'", false, "(2, 2)", &[1, 2, 3, 200])),
    ];
    archive(&path, &members, CompressionMethod::Deflated);
    let mixture = io::read_model(&path).unwrap();
    assert_eq!(mixture.means(), arr2(&[[1.0, -2.0], [3.0, 256.0]]));
    assert_eq!(mixture.covariances().iter().collect::<Vec<_>>(), [1.0, 2.0, 3.0, 200.0]);
    assert_eq!(mixture.weights().to_vec(), [0.5, 0.5]);
}

#[test]
fn a_separator_at_the_end_of_lines_separates_nothing() {
    let x = arr2(&[[1.0, 2.5], [3.0, -4.0]]);
    for (text, names) in [
        ("1,2.5,\n3,-4,\n", None),
        ("a,b,\n1,2.5,\n3,-4,\n", strings(&["a", "b"])),
        ("a,b\n1,2.5,\n3,-4,\n", strings(&["a", "b"])),
        ("a,b,\n1,2.5\n3,-4\n", strings(&["a", "b"])),
        ("1;2.5; \r\n3;-4;\r\n", None),
        ("a\tb\t\n1\t2.5\t\n3\t-4\t", strings(&["a", "b"])),
    ] {
        let (values, found, remarks) = read("x.csv", text);
        assert_eq!((values, found), (x.clone(), names), "{text:?}");
        assert!(remarks[0].contains("end with a separator"), "{remarks:?}");
    }
    // A named column may have no values, and a single value makes the last field a column.
    let (values, names, remarks) = read("x.csv", "a,b,c\n1,2,\n3,4,\n");
    assert_eq!((values.dim(), names, remarks.len()), ((2, 3), strings(&["a", "b", "c"]), 0));
    let (values, _, remarks) = read("x.csv", "1,2,\n3,4,5\n");
    assert_eq!((values.dim(), remarks.len()), ((2, 3), 0));
    // A value that appears late is not dropped silently.
    let late = format!("{}7,8,9\n", "1,2,\n".repeat(20_000));
    refused(late, &["x.csv: line 20001 has `9` after its last separator", "a header"]);
    assert_has(&notes("1,2,\n3,5,\n4,4,\n"), &["note: x.csv: the lines end with a separator"]);
}

#[test]
fn comments_before_the_first_line_are_passed_over() {
    let x = arr2(&[[1.0, 2.5], [3.0, -4.0]]);
    let ab = strings(&["a", "b"]);
    for (text, names) in [
        ("# made by x\n1,2.5\n3,-4\n", None),
        ("# made by x, version 1, of today\n# 2026\n\na,b\n1,2.5\n3,-4\n", ab.clone()),
        ("\u{feff}# made by x\r\na;b\r\n1;2.5\r\n3;-4", ab.clone()),
        // A header as NumPy's savetxt writes it.
        ("# a b\n1 2.5\n3 -4\n", ab.clone()),
        ("# a,b\n1,2.5\n3,-4\n", ab),
        ("#a\tb\n1\t2.5\n3\t-4\n", strings(&["#a", "b"])),
        ("# 1,2\n1,2.5\n3,-4\n", None),
    ] {
        let (values, found, _) = read("x.csv", text);
        assert_eq!((values, found), (x.clone(), names), "{text:?}");
    }
    // Lines are counted from the beginning of the file.
    refused("# one\n# two\na,b\n1,2\n3,x\n", &["x.csv: line 5, column 1", "`x`"]);
    refused("# one\r\na,b\r\n1,2\r\n\r\n\r\n3,x\r\n", &["line 6, column 1"]);
    refused("a,b\n\n\"1\",\"\n2\"\n\n\n3,x\n", &["line 7, column 1"]);
    refused("a,b\n# late\n1,2\n", &["line 2 has 1 fields", "begin with #", "before the first line only"]);
    refused("a\n1\n# late\n", &["line 3", "`# late` is not a number", "before the first line only"]);
    refused("# nothing else\n", &["0 rows"]);
}

#[test]
fn utf_16_is_decoded_where_its_mark_says_so() {
    let text = "größe,b\r\n1,2.5\r\n3,-4\r\n";
    for big_endian in [false, true] {
        let (values, names, _) = read("x.csv", utf16(text, big_endian));
        assert_eq!((values, names), (arr2(&[[1.0, 2.5], [3.0, -4.0]]), strings(&["größe", "b"])));
        // Longer than the part that is inspected first.
        let long = format!("# made by x\n{}", "1,2\n".repeat(50_000));
        assert_eq!(read("x.csv", utf16(&long, big_endian)).0.dim(), (50_000, 2));
    }
    refused(utf16("a,b\n1,2\n3,x\n", false), &["line 3, column 1", "`x`"]);
    refused(&utf16(text, false)[2..], &["line 1 has a byte of zero", "UTF-16 without the mark"]);
    refused(b"\xff\xfe\0\0a\0\0\0", &["UTF-32"]);
}

#[test]
fn a_first_column_without_a_name_is_an_index() {
    let text = ",a,b\n0,1,2.5\n1,3,-4\n";
    let x = arr2(&[[1.0, 2.5], [3.0, -4.0]]);
    for text in [text, "\"\",\"a\",\"b\"\n\"r1\",1,2.5\n\"r2\",3,-4\n"] {
        let (values, names, remarks) = read("x.csv", text);
        assert_eq!((values, names), (x.clone(), strings(&["a", "b"])));
        assert!(remarks[0].contains("`column 0` is left out: it is an index"), "{remarks:?}");
    }
    // A column that is named is read.
    let named = ColumnSelection { columns: strings(&["b", "column 0"]).unwrap(), ..ColumnSelection::default() };
    let (values, _, remarks) = read_with("x.csv", text, &named);
    assert_eq!((values, remarks.len()), (arr2(&[[2.5, 0.0], [-4.0, 1.0]]), 0));
    // If other names are missing too, the column is read like the others.
    assert_eq!(read("x.csv", ",a,\n0,1,2\n1,3,4\n").0.dim(), (2, 3));
    assert_has(&notes(text), &["note: x.csv: `column 0` is left out"]);
}

/// A row `1,5` is one number, unless the rows show that it is an index and a number.
#[test]
fn a_single_column_may_have_decimal_commas() {
    let folder = folder();
    let fit = "fit data/iris.csv -k 2";
    for text in ["w\n1,5\n2,5\n3,5\n", "\"w\"\r\n\r\n1,5\r\n2,7\r\n3,1\r\n", "w\n1,5\n2\n1,5e-1\n", "w\n-1,5\n-1,5\n"] {
        let said =
            "`1,5` is a number with a decimal comma, or an index and a number; --decimal , or --decimal . says which";
        let said = said.replace("1,5", if text.contains("-1,5\n") { "-1,5" } else { "1,5" });
        refused(text, &[&said]);
        folder.write("w.csv", text);
        folder.refused(format!("{fit} --sample-weight w.csv"), &["w.csv: line ", &said]);
        let comma = ColumnSelection { decimal: Some(io::Decimal::Comma), ..ColumnSelection::default() };
        assert_eq!(read_with("x.csv", text, &comma).0.ncols(), 1);
    }
    let point = ColumnSelection { decimal: Some(io::Decimal::Point), ..ColumnSelection::default() };
    assert_eq!(read_with("x.csv", "w\n1,5\n2,7\n", &point).0, arr2(&[[5.0], [7.0]]));
    for text in ["w\n1,5\n2,-7\n", "w\n1,5\n2,7.0\n", "w\na,5\nb,7\n", "\"w\"\n\"1\",5\n\"2\",7\n", ",w\n0,5\n1,7\n"] {
        let (values, names, remarks) = read("x.csv", text);
        assert_eq!((values.map(|v| v.abs()), names), (arr2(&[[5.0], [7.0]]), strings(&["w"])), "{text:?}");
        assert!(remarks[0].contains("it is an index"), "{remarks:?}");
    }
    // Other files are noted like the data.
    folder.write("w.csv", format!(",w\n{}", (0..150).map(|i| format!("{i},1\n")).collect::<String>()));
    folder.write("s.csv", format!(",a,b,c,d\n{}", (0..150).map(|i| format!("{i},1,1,1,1\n")).collect::<String>()));
    for more in ["--sample-weight w.csv", "--labels w.csv", "--noise s.csv"] {
        let file = more.split(' ').next_back().unwrap();
        assert_has(&folder.notes(format!("{fit} {more}")), &[&format!("note: {file}: `column 0` is left out")]);
    }
}

#[test]
fn lines_of_any_width_are_read() {
    let d = 6000;
    let line = |f: &dyn Fn(usize) -> String| (0..d).map(f).collect::<Vec<_>>().join(",");
    let header = line(&|i| format!("a column of number {i}"));
    let row = |r: usize| line(&|i| format!("{}.25e+00", (i * 7 + r) % 1000 + 1000));
    let (rows, named) = ([row(0), row(1), row(2)].join("\n"), |names: &str| {
        format!("{names}\n{}", [row(0), row(1), row(2)].join("\n"))
    });
    for (text, has_names) in [(rows, false), (named(&header), true)] {
        assert!(text.lines().all(|line| line.len() > 64 << 10));
        let (values, names, _) = read("x.csv", text);
        assert_eq!(values.dim(), (3, d));
        assert_eq!(values[[2, d - 1]], ((d - 1) * 7 + 2) as f64 % 1000.0 + 1000.25);
        assert_eq!(names.map(|names| names[d - 1].clone()), has_names.then(|| format!("a column of number {}", d - 1)));
    }
    // Decimals with a comma are recognised in the second line.
    let text = format!("{}\n{}", header.replace(',', ";"), row(0).replace(',', ";").replace('.', ","));
    assert_eq!(read("x.csv", text).0[[0, 1]], 1007.25);
}

#[test]
fn a_header_may_be_of_numbers() {
    let x = arr2(&[[0.1, 0.5, 0.25], [0.4, 0.2, 0.75]]);
    let body = "0.1,0.5,0.25\n0.4,0.2,0.75\n";
    for (header, names) in [("2019,2020,2021", &["2019", "2020", "2021"]), ("0,1,2", &["0", "1", "2"])] {
        let (values, found, remarks) = read("x.csv", format!("{header}\n{body}"));
        assert_eq!((values, found), (x.clone(), strings(names)));
        assert!(remarks[0].contains("--header no"), "{remarks:?}");
    }
    // The caller's choice counts.
    let said = |header| ColumnSelection { header: Some(header), ..ColumnSelection::default() };
    let (values, names, remarks) = read_with("x.csv", format!("2019,2020,2021\n{body}"), &said(false));
    assert_eq!((values.dim(), names, remarks.len()), ((3, 3), None, 0));
    let (values, names, remarks) = read_with("x.csv", format!("5,3,7\n{body}"), &said(true));
    assert_eq!((values, names, remarks.len()), (x.clone(), strings(&["5", "3", "7"]), 0));
    // Another file has the same header, but too few rows to show it otherwise.
    let folder = folder();
    folder.write("a.csv", format!("2019,2020,2021\n{body}"));
    folder.write("b.csv", "2019,2020,2021\n1,2,3\n");
    let table = Table::open(&[folder.path("a.csv"), folder.path("b.csv")], &ColumnSelection::default()).unwrap();
    assert_eq!(table.read().unwrap().part_rows, [2, 1]);
}

#[test]
fn spaces_separate_below_a_header_too() {
    let x = arr2(&[[1.0, 2.5], [3.0, -4.0], [5.0, 6.0]]);
    let names = strings(&["a", "b"]);
    for text in [
        "a b\n1 2.5\n3 -4\n5 6\n",
        "   a     b\n   1   2.5\n   3  -4.0\n   5   6.0  \n\n  \n",
        "\"a\" \"b\"\n1 2.5\n3 -4\n5 6\n",
        "a\tb\n1 \t2.5\n3\t -4\n5\t\t6\n",
    ] {
        let (values, found, _) = read("x.txt", text);
        assert_eq!((values, found), (x.clone(), names.clone()), "{text:?}");
    }
    // R writes names of rows, without a name above them.
    for text in [
        "\"a\" \"b\"\n\"1\" 1 2.5\n\"2\" 3 -4\n\"3\" 5 6\n",
        "a\tb\nr 1\t1\t2.5\nr 2\t3\t-4\nr 3\t5\t6\n",
        "a,b\n1,1,2.5\n2,3,-4\n3,5,6\n",
    ] {
        let (values, found, remarks) = read("x.txt", text);
        assert_eq!((values, found), (x.clone(), names.clone()), "{text:?}");
        assert!(remarks[0].contains("`column 0` is left out: it is an index"), "{remarks:?}");
    }
    assert_eq!(read("x.data", "18.0 8\t\"3\"\n15.0 8\t4\n").0, arr2(&[[18.0, 8.0, 3.0], [15.0, 8.0, 4.0]]));
}

#[test]
fn missing_values_are_spelled_as_the_caller_says() {
    let na_values = strings(&[".", "-999", "not asked"]).unwrap();
    let selection = ColumnSelection { na_values, ..ColumnSelection::default() };
    let (values, ..) = read_with("x.csv", "a,b,c\n.,-999.0,1\nNot Asked,?,N/A\n-99,2,3\n", &selection);
    let missing = values.mapv(f64::is_nan);
    assert_eq!(missing, arr2(&[[true, true, false], [true, true, true], [false, false, false]]));
    // A number stands for a missing value in arrays too, in the digits of their type.
    let folder = folder();
    let path = folder.path("x.npy");
    ndarray_npy::write_npy(&path, &arr2(&[[0.1f32, 2.0], [3.0, 4.0]])).unwrap();
    let selection = ColumnSelection { na_values: strings(&["0.1"]).unwrap(), ..ColumnSelection::default() };
    let wide = folder.path("y.npy");
    ndarray_npy::write_npy(&wide, &arr2(&[[0.1f64, f64::from(0.1f32)]])).unwrap();
    for (paths, wanted) in [(&[&path][..], "float32"), (&[&path, &wide], "float64")] {
        let table = || Table::open(paths, &selection).unwrap();
        let n = paths.len() + 1;
        for data in [table().read().unwrap().data, table().into_file(&mut |_| {}).unwrap().rows(0..n).unwrap()] {
            assert_eq!(data.dtype(), wanted);
            let values = data.into_f64();
            let missing = values.indexed_iter().filter(|(_, v)| v.is_nan()).map(|(at, _)| at);
            assert!(missing.eq([(0, 0), (2, 0)].into_iter().take(paths.len())), "{values}");
        }
    }
}

/// Texts of a kept column stay as they are: `NA` is Namibia, `Null` a name.
#[test]
fn texts_that_look_like_missing_values_are_texts() {
    let folder = folder();
    let path = folder.path("x.csv");
    fs::write(&path, b"code,x\nNA,1\nNull,2\n,3\nGr\xf6\xdfe,4\n").unwrap();
    let selection = ColumnSelection { by: Some("code".into()), ..ColumnSelection::default() };
    let table = Table::open(&[&path], &selection).unwrap();
    let ids = table.read().unwrap().ids.unwrap();
    let texts: Vec<Option<String>> =
        [Some("NA"), Some("Null"), None, Some("Größe")].map(|t| t.map(String::from)).to_vec();
    assert_eq!(ids, io::Ids::Texts(texts));
    assert!(table.remarks()[0].contains("Windows-1252"), "{:?}", table.remarks());
}

#[test]
fn columns_have_names_with_commas_and_numbers() {
    let folder = folder();
    folder.write("x.csv", "\"length, mm\",width,note\n1,2,x\n2,5,y\n4,3,z\n");
    for columns in ["\"length, mm\",width", "0,1"] {
        folder.run(["fit", "x.csv", "-k", "1", "--columns", columns, "-o", "m.json"]);
        assert_has(&folder.text("m.json"), &["\"feature_names\": [\"length, mm\", \"width\"]"]);
    }
    folder.run(["marginal", "m.json", "\"length, mm\"", "-o", "l.json"]);
    folder.write("y.csv", "made by x\nin 2020, May, 3\na,b\n1,2\n3,5\n2,2\n");
    let report = folder.fit("y.csv -k 1 --skip-lines 2");
    assert_eq!(report["feature_names"], serde_json::json!(["a", "b"]));
    folder.refused("fit y.csv -k 1", &["--skip-lines 2"]);
}

/// A table that cannot be read as it is gives one message that leads to its numbers, or says why there are none.
#[test]
fn one_message_leads_to_the_numbers() {
    let footnote = "line 6 has 1 fields where the lines before have 3; if the table ends before it, ";
    let rows = "1,2\n3,5\n".repeat(10_000);
    let long = format!("a,b\n{rows}\nSource: a long table of 1999\nand more\n");
    for (content, said, options) in [
        // Types and roles below the names.
        (
            "sepal\tpetal\tiris\nc\tc\td\n\t\tclass\n5.1\t3.5\tsetosa\n4.9\t3.0\tsetosa\n6\t\tvirginica\n",
            &["line 2 has no number where line 4 has some", "leaves out texts (values are missing"][..],
            "--skip-lines 3 --header no --drop 2 --missing",
        ),
        (
            "A catalog\nof 1999\nid,period,value\nA,Q01,1\nA,Q02,2\nB,Q03,4\n",
            &["line 3 has 3 fields where line 2 has 1"],
            "--skip-lines 2 --columns value",
        ),
        ("id,a,b\nx,1,2\ny,2,3\nz,3,5\n\nSource: 1999\n", &[footnote], "--last-line 5 --drop id"),
        (&long, &["line 20003 has 1 fields", "if the table ends before it"], "--last-line 20002"),
        (
            "a,b\n1,2\n2,-inf\n3,5\n4,1\n",
            &["x.csv: column `b`: ", "-inf at row 1, column 1", "--drop b"],
            "--na-values -inf --missing",
        ),
        (
            "a\tb\tc\t\nm\tm\td\t\n\t\tclass\t\n1\t2\tx\t\n2\t2.5\ty\t\n4\t3\tx\t\n",
            &["line 2 has no number where line 4 has some"],
            "--skip-lines 3 --header no --drop 2",
        ),
        ("1,2\n2,inf\n3,5\n4,1\n", &["inf at row 1, column 1"], "--drop 1"),
        (
            "SUNSPOTS\n========\n  Jan Feb\n1749 58.0 62.6\n1750 73.3 75.9\n1751 70.0 43.5\n",
            &["all of it is one column of texts (line 2: `========`); numbers begin on line 4: "],
            "--skip-lines 3 --header no",
        ),
    ] {
        // The message has the options as they must be given.
        let named = options.trim_end_matches(" --missing");
        refused(content, &[said, &[named], if named == options { &[] } else { &["--missing"] }].concat());
        let folder = folder();
        folder.write("x.csv", content);
        folder.run(format!("fit x.csv -k 1 {options}"));
    }
    for (content, said) in [
        (
            "id   education      children\n9    12-15 years    no\n11   < 12 years     yes\n12   16 years       no\n",
            "its columns seem to have fixed widths, and no character separates them: write them with commas",
        ),
        ("name,start\nA,1953-01-20\nB,1961-01-20\n", "no column of numbers is left; write texts and dates as numbers"),
    ] {
        refused(content, &[said]);
    }
}

/// The last line to read may be any line, even a quoted one with more behind it.
#[test]
fn a_table_ends_where_the_caller_says() {
    let last = |line| ColumnSelection { last_line: Some(line), ..ColumnSelection::default() };
    for content in ["a,b\n1,2\n3,4\nx\n", "a,b\n1,2\n3,4\n5,6\n", "a,b\r\n1,2\r\n3,4", "a,b\r1,2\r3,4\r5"] {
        assert_eq!(read_with("x.csv", content, &last(3)).0, arr2(&[[1.0, 2.0], [3.0, 4.0]]), "{content:?}");
    }
    assert_eq!(read_with("x.csv", "1,2\n3,4\n", &last(100)).0.nrows(), 2);
}

#[test]
fn lines_may_end_with_a_carriage_return_alone() {
    let (values, names, _) = read("x.csv", "a,b\r1,2\r3,4\r");
    assert_eq!((values, names), (arr2(&[[1.0, 2.0], [3.0, 4.0]]), strings(&["a", "b"])));
    refused("a,b\r1,2\r3,x\r", &["line 3, column 1"]);
}

#[test]
fn bzip2_is_known_by_its_content() {
    let compress = |text: &str| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let x = arr2(&[[1.0, 2.0], [3.0, 4.0]]);
    // Two members, as `cat a.bz2 b.bz2` makes them.
    for name in ["x.csv.bz2", "x.csv"] {
        let (values, names, _) = read(name, [compress("a,b\n1,2\n3"), compress(",4\n")].concat());
        assert_eq!((values, names), (x.clone(), strings(&["a", "b"])), "{name}");
    }
    // A text may begin like a bzip2 file.
    assert_eq!(read("x.csv", "BZh9,b\n1,2\n3,4\n").1, strings(&["BZh9", "b"]));
    let folder = folder();
    let whole = compress("a,b\n1,2\n3,4\n");
    folder.write("x.csv.bz2", &whole[..whole.len() - 5]);
    folder.refused("fit x.csv.bz2 -k 1", &["x.csv.bz2: the compressed content is damaged or cut"]);
}

#[test]
fn an_interrupt_ends_reading() {
    let folder = folder();
    let (text, array) = (folder.path("x.csv"), folder.path("x.npy"));
    fs::write(&text, "a,b\n1,2\n3,4\n").unwrap();
    fs::write(&array, npy("'|u1'", false, "(2, 2)", &[1, 2, 3, 4])).unwrap();
    let interrupt = Interrupt::default();
    interrupt.raise();
    for path in [&text, &array] {
        let open = || Table::open(&[path], &ColumnSelection::default()).unwrap();
        let file = open().into_file(&mut |_| {}).unwrap();
        let read = || [open().read().err(), file.rows(0..2).err()];
        for error in interrupt.install(read) {
            let problem = error.map(|error| error.problem);
            let is_interrupted = |error: &Error| matches!(error, Error::Interrupted);
            assert!(
                matches!(&problem, Some(Problem::Content(error)) if is_interrupted(error)),
                "{path:?}: {problem:?}"
            );
        }
        // The interrupt ends with the work that it was installed for.
        assert!(read().iter().all(Option::is_none), "{path:?}");
    }
    assert!(
        interrupt
            .install(|| Table::open(&[&text], &ColumnSelection::default()).unwrap().into_file(&mut |_| {}))
            .is_err()
    );
}
