//! Names of members and paths of manifests: equivalent, ambiguous and hostile ones.

use super::*;

#[test]
fn members_are_found_by_the_path_of_the_manifest() {
    let package = open(&zip(&[
        ("res/a", b"one"),
        ("./res/b", b"two"),
        ("/c", b"three"),
    ]))
    .unwrap();
    for (path, bytes, is_rebased) in [
        ("/res/a", "one", false),
        ("res/a", "one", false),
        ("./res/a", "one", false),
        ("//res/./a", "one", false),
        ("\\res\\a", "one", false),
        ("/res/b", "two", false),
        ("c", "three", false),
        ("/c", "three", false),
        ("/home/me/dump/res/b", "two", true),
        ("C:\\dump\\res\\b", "two", true),
    ] {
        assert_eq!(read(&package, path).unwrap(), bytes.as_bytes(), "{path}");
        assert_eq!(package.member(path).unwrap().is_rebased(), is_rebased);
    }
    for path in ["/res/c", "/res/A", "a", "", "/", "/res", "res/", "/res/a/c"] {
        assert_eq!(code(&package, path), "no-member", "{path}");
    }
}

#[test]
fn local_paths_are_found_without_their_common_folder() {
    let package = open(&zip(&[
        ("/home/me/dump/res/a", b"one"),
        ("/home/me/dump/res/x/b", b"two"),
        ("/home/me/dump/res/x/x/b", b"three"),
        ("manifest.xml", b""),
    ]))
    .unwrap();
    for (path, expected) in [
        ("/res/a", "one"),
        ("a", "one"),
        ("x/b", "two"),
        ("dump/res/x/x/b", "three"),
        ("/home/me/dump/res/a", "one"),
    ] {
        assert_eq!(read(&package, path).unwrap(), expected.as_bytes(), "{path}");
    }
    assert_eq!(code(&package, "b"), "no-member");
}

#[test]
fn missing_member_of_an_existing_folder_is_not_searched_elsewhere() {
    let package = open(&zip(&[("index", b"top"), ("a/other", b""), ("b/c/x", b"")])).unwrap();
    assert_eq!(code(&package, "/a/index"), "no-member");
    assert_eq!(code(&package, "/b/index"), "no-member");
    assert!(package.member("/elsewhere/index").unwrap().is_rebased());
}

#[test]
fn an_ambiguous_path_is_an_error() {
    let twice = |second: &[u8]| {
        let (first, second) = (Raw::stored("a", b"one"), Raw::stored("/a", second));
        open(&raw_zip(&[first, second])).unwrap()
    };
    assert_eq!(code(&twice(b"two"), "a"), "ambiguous-member");
    // Some tools add a file twice.
    assert_eq!(read(&twice(b"one"), "a").unwrap(), b"one");

    // Without folders of the path it is one member, without the common folder of the names another.
    let package = open(&zip(&[
        ("r/x/p/a", b"one"),
        ("r/x/a", b"two"),
        ("p/q", b""),
    ]))
    .unwrap();
    assert_eq!(
        code(&package, "a"),
        "no-member",
        "nothing is common to all names"
    );
    let package = open(&zip(&[("r/p/a", b"one"), ("r/z/r/p/a", b"two")])).unwrap();
    assert_eq!(code(&package, "z/r/p/a"), "ambiguous-member");
    // Either folder may be left out.
    let package = open(&zip(&[("r/x/a", b"one"), ("r/x/x/a", b"two")])).unwrap();
    assert_eq!(code(&package, "x/a"), "ambiguous-member");
    assert_eq!(read(&package, "x/x/a").unwrap(), b"two");
}

#[test]
fn hostile_names_are_only_compared() {
    let long = "n".repeat(60_000);
    let deep = "d/".repeat(20_000) + "x";
    let names = [
        "../a",
        "../../../../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "..",
        "...",
        "....//a",
        "C:\\windows\\system32\\a",
        "C:a",
        "\\\\host\\share\\a",
        "..\\..\\a",
        "a\\b",
        "CON",
        "NUL.txt",
        "a\0b",
        "\0",
        "a\n\r\tb",
        "a b",
        " a",
        "a.",
        "~/.ssh/id",
        "$HOME",
        "`id`",
        "%2e%2e/a",
        "file:///a",
        "-rf",
        "ａ",
        "e\u{301}",
        "\u{202e}txt.exe",
        "\u{feff}a",
        ".resyncd/lock",
        &long,
        &deep,
    ];
    for name in names {
        let package = open(&raw_zip(&[Raw::stored(name, b"bytes")])).unwrap();
        assert_eq!(read(&package, name).unwrap(), b"bytes", "{name:?}");
        assert_eq!(code(&package, "/x/y"), "no-member");
    }
    for (name, path) in [("a\0b", "a"), ("e\u{301}", "é"), ("A", "a"), ("a ", "a")] {
        let package = open(&raw_zip(&[Raw::stored(name, b"")])).unwrap();
        assert_eq!(code(&package, path), "no-member", "{name:?} {path:?}");
    }
    // A path of that many segments is not searched without its folders.
    let package = open(&raw_zip(&[Raw::stored("x", b"")])).unwrap();
    assert_eq!(code(&package, &deep), "no-member");
}

#[test]
fn names_without_the_utf_8_flag_are_utf_8_or_code_page_437() {
    for (name, path) in [
        ("é.txt".as_bytes(), "é.txt"),
        (b"\x82.txt", "é.txt"),
        (b"\xe1\xff", "ß\u{a0}"),
        (b"\x80\xfe", "Ç■"),
    ] {
        let named = Raw {
            name: name.to_vec(),
            ..Raw::stored("", b"bytes")
        };
        let package = open(&raw_zip(&[named])).unwrap();
        assert_eq!(read(&package, path).unwrap(), b"bytes", "{path}");
    }
}

#[test]
fn folders_and_symlinks_are_not_files() {
    let symlink = Raw {
        unix_mode: 0o120_777,
        ..Raw::stored("link", b"/etc/passwd")
    };
    let folder = Raw::stored("folder/", b"");
    let both = [Raw::stored("both/", b""), Raw::stored("both", b"file")];
    let package = open(&raw_zip(&[vec![symlink, folder], both.into()].concat())).unwrap();
    assert_eq!(code(&package, "link"), "bad-member");
    assert_eq!(code(&package, "folder"), "no-member");
    assert_eq!(read(&package, "both").unwrap(), b"file");
    assert_eq!(package.members(), 4);
}

#[test]
fn the_manifest_is_at_the_top_in_any_case() {
    const MANIFEST: &[u8] = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcedump-manifest"/>
        <url><loc>a</loc></url></urlset>"#;
    let base = Url::parse("http://source/dumps/p.zip").unwrap();
    for name in [
        "manifest.xml",
        "/manifest.xml",
        "./manifest.xml",
        "Manifest.XML",
        "\\manifest.xml",
    ] {
        let decoy = ("res/manifest.xml", b"decoy".as_slice());
        let package = open(&zip(&[decoy, (name, MANIFEST)])).unwrap();
        let mut manifest = package.manifest(&base, 1 << 10).unwrap();
        let entry = manifest.next_entry().unwrap().unwrap();
        assert_eq!(entry.loc.as_str(), "http://source/dumps/a");
        assert!(manifest.next_entry().unwrap().is_none());
        let error = package.manifest(&base, 100).unwrap_err();
        assert_eq!(error.code(), "too-large");
    }
    let manifest_of = |members: &[(&str, &[u8])]| {
        let package = open(&zip(members)).unwrap();
        package
            .manifest(&base, 1 << 10)
            .map(|_| ())
            .map_err(|error| error.code())
    };
    assert_eq!(
        manifest_of(&[("a/manifest.xml", MANIFEST)]),
        Err("no-manifest")
    );
    assert_eq!(manifest_of(&[("manifest.xml/", b"")]), Err("no-manifest"));
    assert_eq!(manifest_of(&[]), Err("no-manifest"));
    assert_eq!(
        manifest_of(&[("manifest.xml", b"<html/>")]),
        Err("html-page")
    );
    assert_eq!(
        manifest_of(&[("MANIFEST.xml", b"x"), ("manifest.xml", MANIFEST)]),
        Ok(())
    );
    assert_eq!(
        manifest_of(&[("MANIFEST.xml", b"x"), ("Manifest.xml", MANIFEST)]),
        Err("ambiguous-member")
    );
}
