//! The spelling of numbers in the output of programs, which need not be that of their input.

/// Whose numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As they are spelled in the file or in the patch.
    Spelled,
    /// Those of Python's `json`: `1.0`, `1e+16`, integers of any length.
    Python,
    /// Those of `JSON.stringify`: `1`, `10000000000000000`, nothing but doubles.
    JavaScript,
}

impl Numbers {
    /// How a number is written.
    pub(super) fn spelling(self, number: &str) -> String {
        match self {
            Self::Spelled => number.to_owned(),
            Self::Python if !number.contains(['.', 'e', 'E']) => match number {
                "-0" => "0".to_owned(),
                integer => integer.to_owned(),
            },
            Self::Python => python(number),
            Self::JavaScript => javascript(number),
        }
    }
}

/// The digits of a double, as few as distinguish it from its neighbours, and the exponent of the first one.
fn shortest(number: f64) -> (String, i32) {
    let text = format!("{:e}", number.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// Digits with a point in their place; without one if there are none after it.
fn fixed(digits: &str, exponent: i32) -> String {
    let Ok(before) = usize::try_from(exponent + 1) else {
        let zeros = usize::try_from(-exponent - 1).unwrap_or_default();
        return format!("0.{}{digits}", "0".repeat(zeros));
    };
    match before {
        0 => format!("0.{digits}"),
        before if digits.len() <= before => {
            format!("{digits}{}", "0".repeat(before - digits.len()))
        }
        before => format!("{}.{}", &digits[..before], &digits[before..]),
    }
}

fn scientific(digits: &str, exponent: &str) -> String {
    match digits.split_at(1) {
        (first, "") => format!("{first}e{exponent}"),
        (first, rest) => format!("{first}.{rest}e{exponent}"),
    }
}

fn python(number: &str) -> String {
    let value: f64 = number.parse().unwrap_or_default();
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}Infinity");
    }
    let (digits, exponent) = shortest(value);
    let written = match exponent {
        -4..16 => fixed(&digits, exponent),
        _ => scientific(&digits, &format!("{exponent:+03}")),
    };
    let point = if written.contains(['.', 'e']) {
        ""
    } else {
        ".0"
    };
    format!("{sign}{written}{point}")
}

fn javascript(number: &str) -> String {
    let value: f64 = number.parse().unwrap_or_default();
    if value.is_infinite() {
        return "null".to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let (digits, exponent) = shortest(value);
    let written = match exponent {
        -6..21 => fixed(&digits, exponent),
        _ => scientific(&digits, &format!("{exponent:+}")),
    };
    format!("{sign}{written}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_programs_do() {
        for (number, python, javascript) in [
            ("0", "0", "0"),
            ("-0", "0", "0"),
            ("-0.0", "-0.0", "0"),
            ("1.50", "1.5", "1.5"),
            ("1.0", "1.0", "1"),
            ("-12.5e1", "-125.0", "-125"),
            ("1E+2", "100.0", "100"),
            ("0.1", "0.1", "0.1"),
            ("0.0001", "0.0001", "0.0001"),
            ("0.00001", "1e-05", "0.00001"),
            ("0.00000123", "1.23e-06", "0.00000123"),
            ("1e-7", "1e-07", "1e-7"),
            ("1.25e-100", "1.25e-100", "1.25e-100"),
            ("1e15", "1000000000000000.0", "1000000000000000"),
            ("1e16", "1e+16", "10000000000000000"),
            ("123456789e12", "1.23456789e+20", "123456789000000000000"),
            ("1.5e21", "1.5e+21", "1.5e+21"),
            (
                "12345678901234567890",
                "12345678901234567890",
                "12345678901234567000",
            ),
            ("1e400", "Infinity", "null"),
            ("-1e400", "-Infinity", "null"),
            (
                "3.141592653589793238",
                "3.141592653589793",
                "3.141592653589793",
            ),
        ] {
            assert_eq!(Numbers::Python.spelling(number), python, "{number}");
            assert_eq!(Numbers::JavaScript.spelling(number), javascript, "{number}");
            assert_eq!(Numbers::Spelled.spelling(number), number);
        }
    }
}
