"""WebRTC reaches UDP, which no content-security policy holds."""

html(f"<script>p=new RTCPeerConnection({{iceServers:[{{urls:'{STUN}'}}]}});p.createDataChannel('x');p.createOffer().then(o=>p.setLocalDescription(o))</script>")
