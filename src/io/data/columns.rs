//! The choice of features among the columns of a table.
use super::array::Dtype;
use super::decimal::Decimal;
use crate::io::Problem;
use std::collections::{HashMap, HashSet};

/// An error lists at most this many names.
pub(super) const MAX_LISTED: usize = 12;
/// Advice, which a user copies, lists at most this many names.
pub(super) const MAX_ADVISED: usize = 100;
/// The longest name in an error, in characters.
const MAX_LENGTH: usize = 40;

/// The columns of a table to take, by name or by number counted from 0 (a name takes precedence), and the notation of
/// text.
#[derive(Debug, Clone, Default)]
pub struct ColumnSelection {
    /// The features, in this order. Empty: all columns.
    pub columns: Vec<String>,
    /// Columns that are not features.
    pub drop: Vec<String>,
    /// A column that identifies the rows and is kept for results. It is a feature only if `columns` names it.
    pub id: Option<String>,
    /// A column whose values divide the rows into groups. It replaces `id`, and is never a feature.
    pub by: Option<String>,
    /// The names of a model's features, which are found in the table by name. A table without names is taken as it is.
    pub model: Option<Vec<String>>,
    /// The decimal mark of text. `None`: a point, unless the beginning of a text whose fields are not separated by
    /// commas shows that it is a comma.
    pub decimal: Option<Decimal>,
    /// Whether the first line of a text, after comments, is a header. `None`: yes if it has names, or numbers that look
    /// like names.
    pub header: Option<bool>,
    /// The number of lines to skip before the header or, without one, the first row.
    pub skip_lines: usize,
    /// The last line of a text to read, counted from 1: notes may follow it. `None`: all lines are read.
    pub last_line: Option<usize>,
    /// Further texts that stand for a missing value, in upper or lower case. A number stands for one in every format,
    /// in any notation.
    pub na_values: Vec<String>,
    /// Whether an array of shape (N,) is one column.
    pub is_vector: bool,
}

/// A column of a file, as the header or the schema describes it.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// `None` if the file has no names.
    pub name: Option<String>,
    pub kind: Kind,
    /// Whether a library wrote the column as an index of the rows. An index is a feature only if named.
    pub is_index: bool,
    /// Whether a value is known to be missing.
    pub has_missing: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// Numbers, to be read as this type (for text, judged by its beginning).
    Number(Dtype),
    /// Something else, in words.
    Other(String),
}

/// The columns of a file to read.
#[derive(Debug, Clone)]
pub(super) struct Projection {
    /// The numbers of the features' columns, in the order of the features.
    pub columns: Vec<usize>,
    /// The distinct names of the features. `None` if the file has no names.
    pub names: Option<Vec<String>>,
    pub id: Option<usize>,
    /// The names of columns that the model does not have.
    pub left_out: Vec<String>,
    /// The name of an index of the rows that is left out.
    pub index: Option<String>,
    pub dtype: Dtype,
}

impl ColumnSelection {
    pub(super) fn resolve(&self, fields: &[Field]) -> Result<Projection, Problem> {
        self.resolve_names(fields, self.model.as_deref(), "the model was fitted to columns")
    }

    /// Finds the columns of another file by the names of the features in the first file.
    pub(super) fn resolve_as(&self, fields: &[Field], names: &[String]) -> Result<Projection, Problem> {
        let selection = Self { columns: Vec::new(), drop: Vec::new(), ..self.clone() };
        let mut projection = selection.resolve_names(fields, Some(names), "the first file has columns")?;
        // Columns left out by options need no remark.
        let by_model = self.model.is_some() && self.columns.is_empty();
        projection.left_out.retain(|name| by_model && !self.drop.contains(name));
        Ok(projection)
    }

    /// `wanted` are the names of the features, and `whose` says where they come from.
    fn resolve_names(&self, fields: &[Field], wanted: Option<&[String]>, whose: &str) -> Result<Projection, Problem> {
        let named = fields.iter().all(|field| field.name.is_some());
        let name = |column: usize| name_of(fields, column);
        let all_names = || list((0..fields.len()).map(|column| short(&name(column))));
        let mut places = HashMap::<String, Vec<usize>>::new();
        (0..fields.len()).for_each(|column| places.entry(name(column)).or_default().push(column));
        let find = |wanted: &str| match places.get(wanted).map_or(&[][..], Vec::as_slice) {
            [first, second, ..] => Err(Problem::format(format!(
                "columns {first} and {second} (counted from 0) are both called `{}`; give them different names, or name one \
                     by its number",
                short(wanted)
            ))),
            found => Ok(found.first().copied()),
        };
        let find_given = |wanted: &String, option: &str| {
            let number = || wanted.parse().ok().filter(|&column| column < fields.len());
            find(wanted)?.or_else(number).ok_or_else(|| {
                let counted = if named { "" } else { " (it has no names; columns are counted from 0)" };
                Problem::format(format!(
                    "--{option}: there is no column `{}`; there are {}{counted}",
                    short(wanted),
                    all_names()
                ))
            })
        };
        let given = |names: &[String], option: &str| -> Result<Vec<usize>, Problem> {
            names.iter().map(|name| find_given(name, option)).collect()
        };
        let by = self.by.as_ref().map(|name| find_given(name, "by")).transpose()?;
        let id = match by {
            Some(by) => Some(by),
            None => self.id.as_ref().map(|name| find_given(name, "id")).transpose()?,
        };
        let drop = given(&self.drop, "drop")?;
        let mut columns = given(&self.columns, "columns")?;
        if let Some(twice) = (1..columns.len()).find(|&i| columns[..i].contains(&columns[i])) {
            return Err(Problem::format(format!("--columns names `{}` twice", short(&self.columns[twice]))));
        }
        if let Some(by) = by.filter(|by| columns.contains(by)) {
            return Err(Problem::format(format!(
                "`{}` is the column of --by, so it cannot be a feature; remove it from --columns",
                short(&name(by))
            )));
        }
        if columns.is_empty() {
            let is_wanted =
                |column| Some(column) != by && named && wanted.is_some_and(|wanted| wanted.contains(&name(column)));
            let is_feature = |column: usize| Some(column) != id && !fields[column].is_index;
            columns = (0..fields.len()).filter(|&column| is_feature(column) || is_wanted(column)).collect();
        }
        let left_out_index = |column: &usize| {
            let unmentioned = Some(*column) != id && !drop.contains(column) && self.columns.is_empty();
            fields[*column].is_index && unmentioned && !columns.contains(column)
        };
        let index = (0..fields.len()).find(left_out_index).map(name);
        columns.retain(|column| !drop.contains(column));
        if columns.is_empty() && !fields.is_empty() {
            return Err(Problem::format("no column is left to be a feature"));
        }
        let mut left_out = Vec::new();
        if let Some(wanted) = wanted.filter(|_| named) {
            let present: HashSet<usize> = columns.iter().copied().collect();
            let found = wanted.iter().map(|name| Ok(find(name)?.filter(|column| present.contains(column))));
            let found = found.collect::<Result<Vec<_>, Problem>>()?;
            let missing: Vec<&String> =
                wanted.iter().zip(&found).filter(|(_, f)| f.is_none()).map(|(n, _)| n).collect();
            if !missing.is_empty() {
                return Err(Problem::format(format!(
                    "{whose} that are missing here: {}; the columns here are {}",
                    list(missing.into_iter().map(|name| short(name))),
                    list(columns.iter().map(|&column| short(&name(column))))
                )));
            }
            let found: Vec<usize> = found.into_iter().flatten().collect();
            let kept: HashSet<usize> = found.iter().copied().collect();
            left_out = columns.iter().filter(|column| !kept.contains(column)).map(|&column| name(column)).collect();
            columns = found;
        }
        let dtype = dtype_of(fields, &columns)?;
        let names: Option<Vec<String>> = match named && !columns.is_empty() {
            true => Some(columns.iter().map(|&column| name(column)).collect()),
            false => {
                wanted.filter(|wanted| !wanted.is_empty() && wanted.len() == columns.len()).map(<[String]>::to_vec)
            }
        };
        // A name of two columns would not let a model find its features in another table.
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().flatten().find(|name| !seen.insert(*name)) {
            find(twice)?;
        }
        Ok(Projection { columns, names, id, left_out, index, dtype })
    }
}

fn name_of(fields: &[Field], column: usize) -> String {
    fields[column].name.clone().unwrap_or_else(|| column.to_string())
}

/// Returns the type that holds the numbers of these columns, or advice if they hold other values.
fn dtype_of(fields: &[Field], columns: &[usize]) -> Result<Dtype, Problem> {
    let mut dtype = Dtype::F32;
    let (mut others, mut numbers) = (Vec::new(), Vec::new());
    for &column in columns {
        match &fields[column].kind {
            Kind::Number(Dtype::F64) => dtype = Dtype::F64,
            Kind::Number(Dtype::F32) => {}
            Kind::Other(what) => {
                others.push((column, what));
                continue;
            }
        }
        numbers.push(column);
    }
    if others.is_empty() {
        return Ok(dtype);
    }
    let named = |columns: &[usize]| option_list(columns.iter().map(|&c| option_name(fields[c].name.as_deref(), c)));
    let texts: Vec<usize> = others.iter().map(|&(column, _)| column).collect();
    let keep = format!("take the columns of numbers with --columns {}", named(&numbers));
    let drop = format!("leave out columns without numbers with --drop {}", named(&texts));
    let advice = match (numbers.len(), texts.len()) {
        (0, _) => "no column of numbers is left; write texts and dates as numbers first".into(),
        (1..=MAX_ADVISED, ..=MAX_ADVISED) if numbers.len() < texts.len() => format!("{keep}, or {drop}"),
        (_, ..=MAX_ADVISED) => drop,
        (1..=MAX_ADVISED, _) => keep,
        _ => "choose the features with --columns or --drop".into(),
    };
    let what =
        |&(column, what): &(usize, &String)| format!("column `{}` holds {what}", short(&name_of(fields, column)));
    let missing = match numbers.iter().any(|&column| fields[column].has_missing) {
        true => " (others have missing values, which --missing allows)",
        false => "",
    };
    Err(Problem::format(format!("{}{missing}; {advice}", list(others.iter().map(what)))))
}

pub(in crate::io) fn short(name: &str) -> String {
    match name.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into(),
    }
}

/// Returns a column as --columns and --drop take it: its name, or its number if it has no name or a very long one.
pub(super) fn option_name(name: Option<&str>, column: usize) -> String {
    name.filter(|name| name.chars().count() <= MAX_LENGTH).map_or_else(|| column.to_string(), Into::into)
}

/// Returns names as --columns and --drop take them: separated by commas, names with a comma in quotes, and the whole in
/// shell quotes if necessary.
pub(super) fn option_list(names: impl IntoIterator<Item = String>) -> String {
    let quoted = |name: String| match name.contains([',', '"']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name,
    };
    let list = names.into_iter().map(quoted).collect::<Vec<_>>().join(",");
    match list.chars().all(|c| c.is_alphanumeric() || "_-.,:/+%@".contains(c)) && !list.is_empty() {
        true => list,
        false => format!("'{}'", list.replace('\'', "'\\''")),
    }
}

pub(super) fn list(texts: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = texts.collect();
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// Returns the first names, as errors list them.
pub fn names_in_words(names: &[String]) -> String {
    list(names.iter().map(|name| short(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> Vec<Field> {
        let number = |name: &&str| match *name {
            "species" => Kind::Other("texts".into()),
            "wide" => Kind::Number(Dtype::F64),
            _ => Kind::Number(Dtype::F32),
        };
        names
            .iter()
            .map(|name| Field {
                name: Some((*name).into()),
                kind: number(name),
                is_index: *name == "index",
                has_missing: false,
            })
            .collect()
    }

    fn with(set: impl FnOnce(&mut ColumnSelection)) -> ColumnSelection {
        let mut selection = ColumnSelection::default();
        set(&mut selection);
        selection
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn columns_are_found_by_name() {
        let table = fields(&["id", "a", "b", "species", "wide"]);
        let selection = |columns: &[&str], drop: &[&str], id: Option<&str>, model: Option<&[&str]>| {
            let (columns, drop, id, model) = (texts(columns), texts(drop), id.map(String::from), model.map(texts));
            ColumnSelection { columns, drop, id, model, ..ColumnSelection::default() }.resolve(&table)
        };
        let found = selection(&["b", "a"], &[], Some("id"), None).unwrap();
        assert_eq!((found.columns, found.names, found.id), (vec![2, 1], Some(texts(&["b", "a"])), Some(0)));
        assert_eq!(found.dtype, Dtype::F32);
        let found = selection(&[], &["species"], Some("id"), None).unwrap();
        assert_eq!((found.columns, found.dtype), (vec![1, 2, 4], Dtype::F64));
        // The order is that of the model, not of the table; columns that the model lacks are left out, even if they are
        // not numbers.
        let found = selection(&[], &[], None, Some(&["wide", "a"])).unwrap();
        assert_eq!((found.columns, found.left_out), (vec![4, 1], texts(&["id", "b", "species"])));
        // The identifier is a feature if the model has it.
        let found = selection(&[], &[], Some("a"), Some(&["b", "a"])).unwrap();
        assert_eq!((found.columns, found.id), (vec![2, 1], Some(1)));
        let by = |columns: &[&str], model: Option<&[&str]>| {
            let (by, columns, drop) = (Some("a".into()), texts(columns), texts(&["species"]));
            ColumnSelection { by, columns, drop, model: model.map(texts), ..ColumnSelection::default() }.resolve(&table)
        };
        let found = by(&[], None).unwrap();
        assert_eq!((found.columns, found.id), (vec![0, 2, 4], Some(1)));
        assert!(by(&["a", "b"], None).unwrap_err().to_string().contains("`a` is the column of --by"));
        assert!(by(&[], Some(&["b", "a"])).unwrap_err().to_string().contains("missing here: a"));
        for (result, parts) in [
            (selection(&[], &[], Some("id"), None), &["column `species` holds texts", "--drop species"][..]),
            (selection(&[], &["id", "a", "b", "species", "wide"], None, None), &["no column is left"]),
            (selection(&["c"], &[], None, None), &["--columns", "`c`", "id, a, b, species, wide"]),
            (selection(&["a", "a"], &[], None, None), &["`a` twice"]),
            (selection(&[], &["d"], None, None), &["--drop", "`d`"]),
            (selection(&[], &["a"], None, Some(&["a", "x", "b"])), &["missing here: a, x; the columns here are id, b"]),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn an_index_of_the_rows_is_a_feature_only_where_it_is_named() {
        let table = fields(&["index", "a", "b"]);
        let resolve = |selection: ColumnSelection| {
            let found = selection.resolve(&table).unwrap();
            (found.columns, found.index)
        };
        let left_out = Some("index".to_string());
        assert_eq!(resolve(ColumnSelection::default()), (vec![1, 2], left_out.clone()));
        assert_eq!(resolve(with(|s| s.model = Some(texts(&["b", "a"])))), (vec![2, 1], left_out));
        let named = with(|s| s.columns = texts(&["a", "index"]));
        assert_eq!(resolve(named), (vec![1, 0], None));
        assert_eq!(resolve(with(|s| s.drop = texts(&["index"]))), (vec![1, 2], None));
        assert_eq!(resolve(with(|s| s.id = Some("index".into()))), (vec![1, 2], None));
        let model = with(|s| s.model = Some(texts(&["index", "a"])));
        assert_eq!(resolve(model), (vec![0, 1], None));
    }

    #[test]
    fn advice_can_be_copied() {
        for (names, wanted) in [
            (&["a", "b"][..], "a,b"),
            (&["length, mm", "b"], "'\"length, mm\",b'"),
            (&["o'clock", "5\""], "'o'\\''clock,\"5\"\"\"'"),
        ] {
            assert_eq!(option_list(texts(names)), wanted);
        }
    }

    #[test]
    fn names_that_repeat_or_are_missing() {
        let twice = fields(&["a", "b", "a"]);
        let asked = with(|s| s.drop = texts(&["a"]));
        for selection in [ColumnSelection::default(), asked] {
            let error = selection.resolve(&twice).unwrap_err().to_string();
            assert!(error.contains("columns 0 and 2 (counted from 0) are both called `a`"), "{error}");
        }
        let one = with(|s| s.columns = texts(&["b"])).resolve(&twice).unwrap();
        assert_eq!((one.columns, one.names), (vec![1], Some(texts(&["b"]))));
        let by_number = with(|s| s.columns = texts(&["2", "1"])).resolve(&twice).unwrap();
        assert_eq!((by_number.columns, by_number.names), (vec![2, 1], Some(texts(&["a", "b"]))));
        let unnamed =
            vec![Field { name: None, kind: Kind::Number(Dtype::F64), is_index: false, has_missing: false }; 3];
        let found = with(|s| s.drop = texts(&["1"])).resolve(&unnamed).unwrap();
        assert_eq!((found.columns, found.names), (vec![0, 2], None));
        let model = Some(texts(&["x", "y", "z"]));
        let found = with(|s| s.model = model.clone()).resolve(&unnamed).unwrap();
        assert_eq!((found.columns, found.names), (vec![0, 1, 2], model));
    }
}
