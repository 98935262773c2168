use std::time::Instant;
use weft_core::{EndpointId, PeerId};
use weft_link::*;
struct P([u8;32],[u8;64]);
impl Sink for P { fn frame(&mut self,_f:Option<PeerId>,h:&[u8],p:Bytes<'_>){ self.0.copy_from_slice(&h[..32]); let n=p.len(); p.copy_to(&mut self.1[..n]); } }
fn main(){
 let mut a=ShmLink::new(ShmConfig::new(EndpointId(1))).unwrap();
 let mut ad=Address{endpoint:EndpointId(1),..Default::default()}; a.advertise(&mut ad);
 a.connect(&PeerInfo{peer:PeerId(0),session:0,endpoint:EndpointId(1),address:ad}).unwrap();
 a.finish_wait(); a.finish_wait();
 let mut p=P([0;32],[0;64]); let h=[1u8;32]; let d=[2u8;8];
 for r in 0..4 {
 let n=1_000_000; let t=Instant::now();
 for _ in 0..n { let x=a.send(&[Frame{peer:PeerId(0),header:std::hint::black_box(&h),payload:std::hint::black_box(&d)}]); assert!(x==1); let y=a.recv(16,&mut p); assert!(y==1); }
 let both=t.elapsed().as_nanos() as f64/n as f64;
 let t=Instant::now(); for _ in 0..n { a.recv(16,&mut p); } let idle=t.elapsed().as_nanos() as f64/n as f64;
 let (mut s,mut rr)=(0.0,0.0);
 for _ in 0..n/128 { let t=Instant::now(); for _ in 0..128 { a.send(&[Frame{peer:PeerId(0),header:std::hint::black_box(&h),payload:std::hint::black_box(&d)}]);} s+=t.elapsed().as_nanos() as f64; let t=Instant::now(); let mut g=0; while g<128 {g+=a.recv(1,&mut p);} rr+=t.elapsed().as_nanos() as f64; }
 if r>1 {println!("both {both:.1} idle recv {idle:.1} send {:.1} recv1 {:.1}", s/n as f64, rr/n as f64);} }
}
