//! Descriptions of devices, and their faults.
#![allow(non_snake_case)]

use weft_dd::{Device, DeviceError, Edge, Params, ParamsError, ParseError, DIODE, LASER};

fn read(text: &str) -> Result<Device, ParseError> {
    Device::read(&mut text.as_bytes())
}

#[test]
fn read__the_examples() {
    let diode = read(DIODE).unwrap();
    assert_eq!((diode.rows(), diode.cols(), diode.contacts.len()), (61, 13, 2));
    assert!((diode.y[60] - 0.4e-4).abs() < 1e-12 && (diode.x[12] - 0.1e-4).abs() < 1e-12);
    assert_eq!(
        (diode.doping(29, 0), diode.doping(30, 0), diode.doping(60, 0)),
        (-1e18, 1e18, 1e18)
    );
    assert_eq!(
        (diode.contact(0, 0), diode.contact(60, 5), diode.contact(60, 6)),
        (Some(0), None, Some(1))
    );
    let steps: Vec<f64> = diode.voltages().iter().map(|all| all[0]).collect();
    assert_eq!((steps.len(), steps[0], steps[6]), (7, 0.0, 0.6));
    let laser = read(LASER).unwrap();
    let layers: Vec<_> = laser.layers.iter().map(|l| (l.degenerate, l.rows.clone())).collect();
    assert_eq!(layers, [(false, 0..24), (true, 24..48), (false, 48..73)]);
}

#[test]
fn read__boxes_biases_and_graded_lines() {
    let device = read(
        "temperature 77\nmaterial m permittivity 1 gap 1 affinity 0 states 1 1 mobility 1 1 \
         lifetime 1 1\ncolumns 2 over 3 grade 2\nlayer l m doping 1 thickness 1 rows 2\n\
         box 0 1 0.5 1 doping 5\ncontact a top from 1 to 3 # most of it\ncontact b bottom\n\
         bias b -2\n",
    )
    .unwrap();
    assert_eq!(device.temperature, 77.0);
    assert!((device.x[1] - 1e-4).abs() < 1e-18 && (device.x[2] - 3e-4).abs() < 1e-18);
    assert_eq!((device.doping(0, 0), device.doping(1, 1), device.doping(1, 2)), (1.0, 5.0, 1.0));
    assert_eq!((device.contact(0, 0), device.contact(0, 1)), (None, Some(0)));
    assert_eq!((device.contacts[0].edge, device.contacts[1].bias), (Edge::Top, -2.0));
    assert_eq!(device.voltages(), [[0.0, -2.0]]);
}

#[test]
fn read__faults_name_line_and_reason() {
    for (from, to, expected) in [
        ("gap 1.12", "gap -1", "line 4: the band gap is -1, and has to be above 0"),
        ("gap 1.12", "gap nan", "line 4: `nan` is not a finite number (the band gap)"),
        ("gap 1.12", "gab 1.12", "line 4: `gab` is not the word `gap`"),
        ("columns 12", "columns 0", "line 6: `0` is not a number of columns from 1 to 100000"),
        ("columns 12", "columns 99999999", "line 6: `99999999` is not a number of columns"),
        ("over 0.1", "over", "line 6: the width is missing"),
        ("layer p silicon", "layer p tin", "line 7: there is no material tin above this line"),
        ("doping -1e18", "doping inf", "line 7: `inf` is not a finite number (the doping)"),
        ("grade 0.92", "grade 1e-9", "line 7: grade 0.000000001 leaves no distance"),
        ("grade 0.92", "quickly", "line 7: `quickly` is not `grade` or `fermi`"),
        ("contact anode top", "contact anode left", "line 10: `left` is not `top` or `bottom`"),
        ("contact cathode", "contact anode", "line 11: contact anode is there already"),
        ("sweep anode", "sweep gate", "line 12: there is no contact gate above this line"),
        ("step 0.1", "step 1e-9", "line 12: more than 10000 steps from 0 to 0.6 V"),
        ("step 0.1", "step 0.1 V", "line 12: `V` is more than this line takes"),
        ("temperature", "heat", "line 3: `heat` is not temperature, material, columns"),
    ] {
        assert!(DIODE.contains(from), "{from}");
        let error = read(&DIODE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn read__faults_of_the_whole_device_are_named() {
    let only = |words: &[&str]| {
        let has = |line: &&str| words.iter().any(|word| line.starts_with(word));
        let lines: Vec<&str> = DIODE.lines().filter(has).collect();
        match read(&lines.join("\n")) {
            Err(ParseError::Device(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let error = only(&["material", "columns", "layer"]);
    assert_eq!(error, DeviceError::NoContact);
    assert!(error.to_string().contains("`contact NAME top`"), "{error}");
    assert_eq!(only(&["material", "columns", "contact"]), DeviceError::Grid);
    assert_eq!(only(&["material", "layer", "contact"]), DeviceError::Grid);
    let error = read(&DIODE.replace("from 0.05 to 0.1", "from 5 to 6")).unwrap_err();
    assert_eq!(error, ParseError::Device(DeviceError::Nowhere("cathode".into())));
    let error = read(&format!("{DIODE}contact second top from 0 to 0.05\n")).unwrap_err();
    assert_eq!(error.to_string(), "contacts anode and second share a node of the grid");
}

#[test]
fn check__numbers_that_a_program_sets() {
    let params = || Params::new(read(DIODE).unwrap());
    assert_eq!(params().check(61), Ok(()));
    let few = params().check(62).unwrap_err();
    assert_eq!(few.to_string(), "the grid has 61 rows, which are too few for 62 ranks");
    let bad = Params { tolerance: f64::NAN, ..params() };
    assert!(matches!(bad.check(1), Err(ParamsError::Tolerance(_))));
    let mut bad = params();
    bad.device.layers[1].doping = f64::NAN;
    let error = bad.check(1).unwrap_err().to_string();
    assert_eq!(error, "the doping of layer n is not a finite number");
    let mut bad = params();
    bad.device.y.swap(3, 4);
    assert_eq!(bad.check(1), Err(ParamsError::Device(DeviceError::Order)));
}
